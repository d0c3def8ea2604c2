"""The identity of a training: a checkpoint is only resumed by the training that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheafed.checkpointing.state_tree import moved
from sheafed.errors import CheckpointError
from sheafed.methods.method_table import method_table
from sheafed.methods.node import Method, Node
from sheafed.metrics.metric import ACCURACY
from sheafed.training.encoder_check import check_encoder
from sheafed.training.metadata import AgentMetadata


def describe(thing: object) -> str:
    """Return a method or another object as text, without the address that Python shows."""
    anonymous = type(thing).__repr__ is object.__repr__
    return type(thing).__name__ if anonymous else repr(thing)


def method_identity(method: Method) -> dict[str, Any]:
    """Return what may not change of a method, by its name in an error: each of its options.

    >>> from sheafed import NonCooperative
    >>> found = method_identity(NonCooperative(refit_head=True))
    >>> found["method"], found["option refit_head of the method"]
    ('non-cooperative', True)
    """
    table = method_table(method)
    if table is None:
        return {"method": describe(method)}
    options = {f"option {key} of the method": value for key, value in flatten(table).items()}
    name = options.pop("option name of the method")
    return {"method": name, **options}


def flatten(settings: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return nested settings by their paths; an empty table is a value.

    >>> flatten({"maps": {"every": 1}, "noise": {}, "seed": 0})
    {'maps.every': 1, 'noise': {}, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            inner = flatten(value, separator)
            found |= {f"{key}{separator}{rest}": leaf for rest, leaf in inner.items()}
        else:
            found[key] = value
    return found


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
        if what not in identity:
            found = f"it has no {what}, this one has {mine[what]!r}"
        elif what not in mine:
            found = f"its {what} is {identity[what]!r}, this one has none"
        elif identity[what] != mine[what]:
            found = f"its {what} is {identity[what]!r}, this one's {mine[what]!r}"
        else:
            continue
        raise CheckpointError(
            f"{path} is of another training: {found}; resume with the same settings and version, "
            "or choose another directory"
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
