"""One agent of an experiment, for a process of its own."""

from __future__ import annotations

from sheafed.domain.seeds import derive
from sheafed.errors import UnknownAgentError
from sheafed.experiments.build import World
from sheafed.methods.node import Node, Setting


def node_in(world: World, name: str, seed: int, secret: int | None = None) -> Node:
    """Return the program of one agent, as it would be among all the others.

    Args:
        world: what the config, the same for all agents, describes.
        name: which one.
        seed: that of the config.
        secret: a seed that only this agent knows; derived from the shared one by default, which
            is as repeatable as a run in one process and no secret.
    """
    check_name(world, name)
    agents = {agent.name: agent for agent in world.agents}
    batches = min(len(a.data.train) // a.batch_size for a in world.agents)
    agents[name].start(seed)
    return world.method.node(
        Setting(
            agent=agents[name],
            neighbours=tuple(sorted(world.graph.neighbors(name))),
            pilots=world.pilots,
            seed=seed,
            secret=derive(seed, name, "secret") if secret is None else secret,
            rounds_per_epoch=max(1, batches),
            homogeneous=len({a.dimension for a in world.agents}) == 1,
        )
    )


def check_name(world: World, name: str) -> None:
    """Raise unless there is such an agent."""
    if name not in world.graph:
        raise UnknownAgentError(
            f"there is no agent {name!r} in this config, only {sorted(world.graph)}"
        )
