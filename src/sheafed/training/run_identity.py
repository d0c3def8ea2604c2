"""The identity of a training: a checkpoint is only resumed by the training that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheafed.checkpointing.state_tree import moved
from sheafed.errors import CheckpointError
from sheafed.methods.node import Node
from sheafed.metrics.metric import ACCURACY
from sheafed.training.encoder_check import check_encoder
from sheafed.training.metadata import AgentMetadata


def describe(thing: object) -> str:
    """Return a method or another object as text, without the address that Python shows."""
    anonymous = type(thing).__repr__ is object.__repr__
    return type(thing).__name__ if anonymous else repr(thing)


def agent_identity(metadata: AgentMetadata) -> dict[str, Any]:
    """Return what may not change of an agent when a run is resumed, by its name in an error."""
    return {
        **model_identity(metadata),
        "optimiser": metadata.optimizer,
        "batch size": metadata.batch_size,
        "number of training samples": metadata.training_samples,
        "digest of the training data": metadata.training_digest,
        "objective": metadata.objective,
        "scheduler": metadata.scheduler,
        **metadata.hyperparameters,
        **({} if metadata.metric == ACCURACY.name else {"metric": metadata.metric}),
    }


def model_identity(metadata: AgentMetadata) -> dict[str, Any]:
    """Return what may not change of an agent when its network is loaded, to be used."""
    return {"latent size": metadata.dimension, "head": metadata.head}


def check_identity(path: Path, state: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint is of the training with this identity."""
    identity = state.get("identity")
    if not isinstance(identity, dict) or "kind" in state:  # weights, or a network in a file
        raise CheckpointError(
            f"{path} is a checkpoint, but of no training: it holds {sorted(state)}; give the one "
            "that a training wrote, or choose another directory"
        )
    for what in {**mine, **identity}:
        value = mine.get(what)
        if identity.get(what) != value:
            raise CheckpointError(
                f"{path} is of another training: its {what} is {identity.get(what)!r}, "
                f"this one's {value!r}; resume with the same settings, or choose another directory"
            )


def load_states(path: Path, node: Node, agent_state: Any, node_state: Any) -> None:
    """Put an agent and its node, after the handshake, into the states of a checkpoint."""
    try:
        node.agent.load_state(agent_state)
        node.load_state(moved(node_state, node.agent.device))
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as problem:
        raise CheckpointError(
            f"{path} is of another training, or damaged: agent {node.name!r} has other weights "
            f"there ({problem}); resume with the same agents, or choose another directory"
        ) from problem
    check_encoder(path, node, agent_state["check latents"])
