"""Checks of what is given to `train`, with errors that say what to give instead."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from sheafed.agents.agent import Agent
from sheafed.errors import InputError
from sheafed.linalg.checks import as_int
from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode
from sheafed.methods.node import Node
from sheafed.training.callbacks import Callback

logger = logging.getLogger("sheafed.training")


def agents_by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    """Sort the agents by name: their order must not matter. They must share nothing."""
    if isinstance(agents, Mapping):
        raise InputError("agents must be a list, got a mapping; give list(agents.values())")
    listed = _listed("agents", agents)
    for agent in listed:
        if not isinstance(agent, Agent):
            raise InputError(f"agents must be a list of sheafed.Agent, got a {_kind(agent)}")
    counts = Counter(agent.name for agent in listed)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise InputError(
            f"agents must have different names, got {repeated} more than once; rename them"
        )
    _check_apart(listed)
    return {agent.name: agent for agent in sorted(listed, key=lambda agent: agent.name)}


def _check_apart(agents: Iterable[Agent]) -> None:
    """Raise if two agents train one parameter, as when a module was given to both."""
    owners: dict[nn.Parameter, str] = {}
    for agent in agents:
        for parameter in agent.parameters:
            owner = owners.setdefault(parameter, agent.name)
            if owner != agent.name and parameter.requires_grad:
                raise InputError(
                    f"agents {owner!r} and {agent.name!r} train the same parameter, of shape "
                    f"{tuple(parameter.shape)}; give each its own modules, e.g. "
                    "copy.deepcopy(encoder), or freeze what they share"
                )


def note_trained_agents(agents: Mapping[str, Agent]) -> None:
    """Log which agents begin with the weights of an earlier training."""
    trained = [name for name, agent in agents.items() if agent.learns and agent.steps]
    if trained:
        logger.warning(
            "agents %s were trained before and go on from those weights; to begin anew, make "
            "new agents with new modules",
            ", ".join(map(repr, trained)),
        )


def note_lone_agents(nodes: Mapping[str, Node]) -> None:
    """Log which agents of consensus distillation have no classes to agree on."""
    lone = [
        name
        for name, node in nodes.items()
        if isinstance(node, ConsensusDistillationNode) and node.agent.learns and not node.classes
    ]
    if lone:
        logger.warning(
            "agents %s have no head of two or more classes, which consensus distillation is about, "
            "and train for themselves",
            ", ".join(map(repr, lone)),
        )


def check_method(method: Any) -> None:
    """Raise unless this is a method with its options."""
    if isinstance(method, type):
        raise InputError(f"method must be an instance; give {method.__name__}()")
    if not callable(getattr(method, "node", None)):
        raise InputError(
            f"method must be a method like SheafFRL() or NonCooperative(), got {method!r}"
        )


def check_transport(transport: Any) -> None:
    """Raise unless this is a transport, or None."""
    needed = ("send", "barrier", "receive", "close", "ledger")
    if transport is not None and not all(hasattr(transport, name) for name in needed):
        raise InputError(
            f"transport must be an object like sheafed.transport.LocalTransport(names), got "
            f"{transport!r}; leave it out for agents of one process, and see `sheafed agent` for "
            "agents that communicate over a network"
        )


def as_count(name: str, value: int, least: int = 1) -> int:
    """Return a whole number, e.g. of NumPy, as an int; raise unless it is one and large enough."""
    count = as_int(value)
    if count is None or count < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return count


def as_seed(value: int) -> int:
    """Return a seed as an int; raise unless it is a whole number."""
    seed = as_int(value)
    if seed is None:
        raise InputError(f"seed must be a whole number, got {value!r}")
    return seed


def check_callbacks(callbacks: Any) -> None:
    """Raise unless these are callbacks."""
    for callback in _listed("callbacks", callbacks):
        if not isinstance(callback, Callback):
            raise InputError(
                f"callbacks must be instances of sheafed.training.Callback, got a {_kind(callback)}"
            )


def _listed(what: str, given: Any) -> list[Any]:
    if not isinstance(given, Iterable):
        raise InputError(f"{what} must be a list, got a single {_kind(given)}; put it into a list")
    return list(given)


def _kind(given: Any) -> str:
    return f"class {given.__name__}" if isinstance(given, type) else type(given).__name__
