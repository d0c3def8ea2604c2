"""The state of a whole training, to stop anywhere and end with the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sheafed.errors import CheckpointError
from sheafed.methods.node import Method
from sheafed.runtime.checkpoint import load_checkpoint
from sheafed.runtime.run import Run


def snapshot(run: Run, totals: Mapping[str, Sequence[float]], method: Method) -> dict[str, Any]:
    """Return everything that the rest of the training depends on."""
    return {
        "identity": _identity(run, method),
        "rounds": run.rounds,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "metrics": run.metrics,
        "totals": {key: list(values) for key, values in totals.items()},
        "ledger": dict(run.ledger.state()),
        "agents": {name: node.agent.state() for name, node in run.nodes.items()},
        "nodes": {name: node.state() for name, node in run.nodes.items()},
    }


def restore(run: Run, path: Path, method: Method) -> dict[str, list[float]]:
    """Put a run, fresh from its handshake, into the state of a checkpoint, if there is one.

    Returns what had been logged since the last evaluation.
    """
    if not path.exists():
        return {}
    state = load_checkpoint(path)
    identity = state.get("identity")
    if not isinstance(identity, dict):
        raise CheckpointError(
            f"{path} is a checkpoint, but of no training: it holds {sorted(state)}; give the one "
            "that train() wrote, or choose another directory"
        )
    for what, mine in _identity(run, method).items():
        if identity.get(what) != mine:
            raise CheckpointError(
                f"{path} is of another training: its {what} is {identity.get(what)!r}, "
                f"this one's {mine!r}; resume with the same settings, or choose another directory"
            )
    run.rounds = state["rounds"]
    run.seconds = state["seconds"]
    run.stopped = state["stopped"]
    run.metrics = state["metrics"]
    run.ledger.restore(state["ledger"])
    for name, node in run.nodes.items():
        try:
            node.agent.load_state(state["agents"][name])
        except (RuntimeError, ValueError, LookupError) as problem:
            raise CheckpointError(
                f"{path} is of another training: agent {name!r} has other weights there "
                f"({problem}); resume with the same agents, or choose another directory"
            ) from problem
        node.load_state(state["nodes"][name])
    totals: dict[str, list[float]] = state["totals"]
    return totals


def _identity(run: Run, method: Method) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "method": _describe(method),
        "seed": run.seed,
        "rounds per epoch": run.rounds_per_epoch,
        "agents": list(run.nodes),
        "graph": sorted(sorted(edge) for edge in run.graph.edges),
        "pilot set": next(iter(run.nodes.values())).setting.pilots.digest(),
    }
    for name, agent in run.agents.items():
        identity |= {
            f"latent size of agent {name!r}": agent.dimension,
            f"head of agent {name!r}": None if agent.head is None else type(agent.head).__name__,
            f"optimiser of agent {name!r}": type(agent.optimizer).__name__,
            f"batch size of agent {name!r}": agent.batch_size,
            f"number of training samples of agent {name!r}": len(agent.data.train),
        }
    return identity


def _describe(method: Method) -> str:
    """Return the settings of a method, without the address that Python shows by default."""
    anonymous = type(method).__repr__ is object.__repr__
    return type(method).__name__ if anonymous else repr(method)
