"""One agent of an experiment, for a process of its own."""

from __future__ import annotations

from sheafed.errors import UnknownAgentError
from sheafed.experiments.build import World, agent_names, build
from sheafed.experiments.config import Experiment
from sheafed.methods.node import Node
from sheafed.runtime.programs import program


def node_in(world: World, name: str, seed: int, secret: int | None = None) -> Node:
    """Return the program of one agent, as it would be among all the others.

    Args:
        world: what the config, the same for all agents, describes.
        name: which one.
        seed: that of the config.
        secret: a seed that only this agent knows (see `program`).
    """
    (agent,) = (agent for agent in world.agents if agent.name == name)
    return program(
        world.method,
        agent,
        world.graph.neighbors(name),
        world.pilots,
        seed=seed,
        rounds_per_epoch=world.rounds_per_epoch,
        homogeneous=world.homogeneous,
        secret=secret,
    )


def world_of(experiment: Experiment, name: str) -> World:
    """Return what an experiment describes with this one agent in it and no other's data."""
    names = agent_names(experiment)
    if name not in names:
        raise UnknownAgentError(f"there is no agent {name!r} in this config, only {sorted(names)}")
    return build(experiment, only=[name])
