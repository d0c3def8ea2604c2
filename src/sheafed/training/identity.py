"""Which training a checkpoint is of, and what it takes to go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheafed.errors import CheckpointError, InputError
from sheafed.methods.node import Method, Node
from sheafed.training.metadata import AgentMetadata


def describe(method: Method) -> str:
    """Return the settings of a method, without the address that Python shows by default."""
    anonymous = type(method).__repr__ is object.__repr__
    return type(method).__name__ if anonymous else repr(method)


def agent_identity(profile: AgentMetadata) -> dict[str, Any]:
    """Return what may not change of an agent, by the name it has in a refusal."""
    return {
        "latent size": profile.dimension,
        "head": profile.head,
        "optimiser": profile.optimizer,
        "batch size": profile.batch_size,
        "number of training samples": profile.training_samples,
        "objective": profile.objective,
    }


def check_identity(path: Path, state: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint is of the training with this identity."""
    identity = state.get("identity")
    if not isinstance(identity, dict):
        raise CheckpointError(
            f"{path} is a checkpoint, but of no training: it holds {sorted(state)}; give the one "
            "that a training wrote, or choose another directory"
        )
    for what, value in mine.items():
        if identity.get(what) != value:
            raise CheckpointError(
                f"{path} is of another training: its {what} is {identity.get(what)!r}, "
                f"this one's {value!r}; resume with the same settings, or choose another directory"
            )


def check_epochs(out: Path, rounds: int, epochs: int, rounds_per_epoch: int) -> None:
    """Raise if a training has more rounds behind it than it is to have in the end."""
    if rounds > epochs * rounds_per_epoch:
        raise InputError(
            f"{out} has {rounds // rounds_per_epoch} epochs behind it, {epochs} were asked for; "
            "give at least as many"
        )


def load_states(path: Path, node: Node, agent: Any, build_node: Any) -> None:
    """Put an agent and its program, after the handshake, into the states of a checkpoint."""
    try:
        node.agent.load_state(agent)
        node.load_state(build_node)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as problem:
        raise CheckpointError(
            f"{path} is of another training, or damaged: agent {node.name!r} has other weights "
            f"there ({problem}); resume with the same agents, or choose another directory"
        ) from problem
