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
    for what, mine in _identity(run, method).items():
        if state["identity"].get(what) != mine:
            raise CheckpointError(
                f"{path} is of another training: its {what} is {state['identity'].get(what)!r}, "
                f"this one's {mine!r}; resume with the same settings, or choose another directory"
            )
    run.rounds = state["rounds"]
    run.seconds = state["seconds"]
    run.stopped = state["stopped"]
    run.metrics = state["metrics"]
    run.ledger.restore(state["ledger"])
    for name, node in run.nodes.items():
        node.agent.load_state(state["agents"][name])
        node.load_state(state["nodes"][name])
    totals: dict[str, list[float]] = state["totals"]
    return totals


def _identity(run: Run, method: Method) -> dict[str, Any]:
    return {
        "method": repr(method),
        "seed": run.seed,
        "rounds per epoch": run.rounds_per_epoch,
        "agents": {name: node.agent.dimension for name, node in run.nodes.items()},
        "graph": sorted(sorted(edge) for edge in run.graph.edges),
    }
