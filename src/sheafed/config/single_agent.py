"""One agent of an experiment, for a process of its own."""

from __future__ import annotations

from sheafed.config.experiment import Experiment
from sheafed.config.federation import Federation, agent_names, build
from sheafed.errors import UnknownAgentError
from sheafed.methods.build_node import build_node
from sheafed.methods.node import Node


def build_single_node(
    federation: Federation, name: str, seed: int, secret: int | None = None
) -> Node:
    """Return the node of one agent, as it would be among all the others.

    Args:
        world: what the config, the same for all agents, describes.
        name: which one.
        seed: that of the config.
        secret: a seed that only this agent knows (see `build_node`).
    """
    (agent,) = (agent for agent in federation.agents if agent.name == name)
    return build_node(
        federation.method,
        agent,
        federation.graph.neighbors(name),
        federation.pilots,
        seed=seed,
        rounds_per_epoch=federation.rounds_per_epoch,
        homogeneous=federation.homogeneous,
        secret=secret,
    )


def build_single_agent(experiment: Experiment, name: str) -> Federation:
    """Return what an experiment describes with this one agent in it and no other's data."""
    names = agent_names(experiment)
    if name not in names:
        raise UnknownAgentError(f"there is no agent {name!r} in this config, only {sorted(names)}")
    return build(experiment, only=[name])
