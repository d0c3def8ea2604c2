"""The node of one agent."""

from __future__ import annotations

from collections.abc import Iterable

from sheafed.agents.agent import Agent
from sheafed.agents.checks import check_agent
from sheafed.errors import ShapeError
from sheafed.methods.node import Method, Node, NodeContext
from sheafed.methods.returned import check_label, checked_node
from sheafed.pilots.absent_pilots import AbsentPilots
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import derive
from sheafed.tensor_tree import structure


def build_node(
    method: Method,
    agent: Agent,
    neighbours: Iterable[str],
    pilots: PilotSet,
    *,
    seed: int,
    rounds_per_epoch: int,
    homogeneous: bool,
    secret: int | None = None,
) -> Node:
    """Return the node of an agent, with its random streams reset.

    Args:
        method: e.g. `SheafFRL()`.
        agent: whose data and model.
        neighbours: by name.
        pilots: which this agent must be able to see.
        seed: the one that all agents share.
        rounds_per_epoch: likewise.
        homogeneous: whether all latent sizes of the network agree.
        secret: a seed that only this agent knows; derived from the shared one by default, which
            is as repeatable as a run in one process and no secret.
    """
    check_label(method)
    if not isinstance(pilots, AbsentPilots):
        _check_parts(agent, structure(pilots.of(agent.name)))
        check_agent(agent, pilots.of(agent.name))
    agent.reset_rng(seed)
    agent.steps_per_epoch = rounds_per_epoch
    context = NodeContext(
        agent=agent,
        neighbours=tuple(sorted(set(neighbours))),
        pilots=pilots,
        seed=seed,
        secret=derive(seed, agent.name, "secret") if secret is None else secret,
        rounds_per_epoch=rounds_per_epoch,
        homogeneous=homogeneous,
    )
    return checked_node(method, method.node(context))


def _check_parts(agent: Agent, given: str) -> None:
    """Raise unless pilots have the parts that an agent's training inputs have."""
    if given != agent.input_structure:
        raise ShapeError(
            f"agent {agent.name!r}: its pilots are {given}, its training inputs "
            f"{agent.input_structure}; they must have the same parts. A mapping from agents to "
            "pilots needs the agents' names as keys, and PilotSet(inputs, shared=True) are inputs "
            "of several parts that all agents share"
        )
