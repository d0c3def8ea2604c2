"""The state of a whole training, to stop anywhere and end with the same bytes.

One process writes it as one file. In a cluster every rank writes the state of its agents to files
of their own, in a directory named after the round, and when all have, rank 0 writes the rest to
the one file, which names that directory. That file is what makes a checkpoint a common one, and
is replaced at once: a crash at any moment leaves the one before, whole. Whoever resumes, in one
process or many, reads both kinds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import CheckpointError
from sheafed.methods.node import Method
from sheafed.training.identity import agent_identity, check_identity, describe, load_states
from sheafed.training.process_group import ProcessGroup
from sheafed.training.run import Run

PARTS = "checkpoint-"


def save(
    run: Run, out: Path, totals: Mapping[str, Sequence[float]], method: Method, group: ProcessGroup
) -> None:
    """Write everything that the rest of the training depends on."""
    state: dict[str, Any] = {
        "identity": _identity(run, method),
        "rounds": run.rounds,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "metrics": run.metrics,
        "totals": {key: list(values) for key, values in totals.items()},
        "ledger": dict(run.ledger.state()),
    }
    if group.alone:
        state["agents"] = {name: node.agent.state() for name, node in run.nodes.items()}
        state["nodes"] = {name: node.state() for name, node in run.nodes.items()}
    else:
        state["parts"] = f"{PARTS}{run.rounds}"
        for name, node in run.nodes.items():
            part = {"rounds": run.rounds, "agent": node.agent.state(), "node": node.state()}
            save_checkpoint(_file(out / state["parts"], name), part)
        group.gather(None)  # everybody has written
    if group.rank == 0:
        save_checkpoint(out / CHECKPOINT, state)
        _remove_parts(out, run.rounds, keep=state.get("parts"))


def restore(run: Run, out: Path, method: Method, group: ProcessGroup) -> dict[str, list[float]]:
    """Put a run, fresh from its handshake, into the state of a checkpoint, if there is one.

    Returns what had been logged since the last evaluation.
    """
    path = out / CHECKPOINT
    totals = _restore(run, path, method) if path.exists() else {}
    rounds = group.gather(run.rounds)
    if len(set(rounds)) > 1:
        raise CheckpointError(
            f"ranks find checkpoints of different rounds in {out}: {rounds}; it must be a "
            "directory that all of them share"
        )
    return totals


def save_weights(run: Run, path: Path, group: ProcessGroup) -> None:
    """Write the weights of all agents to one file."""
    parts = path.with_suffix(".parts")
    if group.alone:
        save_checkpoint(path, {name: agent.weights() for name, agent in run.agents.items()})
        return
    for name, agent in run.agents.items():
        save_checkpoint(_file(parts, name), agent.weights())
    group.gather(None)  # everybody has written
    if group.rank == 0:
        save_checkpoint(path, {name: load_checkpoint(_file(parts, name)) for name in run.profiles})
        shutil.rmtree(parts)


def _restore(run: Run, path: Path, method: Method) -> dict[str, list[float]]:
    state = load_checkpoint(path)
    check_identity(path, state, _identity(run, method))
    run.rounds = state["rounds"]
    run.seconds = state["seconds"]
    run.stopped = state["stopped"]
    run.metrics = state["metrics"]
    run.ledger.restore(state["ledger"])
    for name, node in run.nodes.items():
        load_states(path, node, *_part(path, state, name))
    totals: dict[str, list[float]] = state["totals"]
    return totals


def _part(path: Path, state: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Return the states of an agent and of its program, wherever they were written."""
    if "parts" not in state:
        return state["agents"].get(name), state["nodes"].get(name)
    file = _file(path.parent / state["parts"], name)
    part = load_checkpoint(file)
    if part.get("rounds") != state["rounds"]:
        raise CheckpointError(
            f"{file} is of round {part.get('rounds')}, {path} of round {state['rounds']}; restore "
            "the whole directory from one copy, or start anew"
        )
    return part.get("agent"), part.get("node")


def _remove_parts(out: Path, rounds: int, keep: str | None) -> None:
    """Remove those of earlier checkpoints; other ranks may be ahead and write to later ones."""
    for directory in out.glob(f"{PARTS}*"):
        number = directory.name.removeprefix(PARTS)
        if directory.name != keep and number.isdecimal() and int(number) <= rounds:
            shutil.rmtree(directory)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{quote(name, safe='')}.safetensors"


def _identity(run: Run, method: Method) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "method": describe(method),
        "seed": run.seed,
        "rounds per epoch": run.rounds_per_epoch,
        "agents": list(run.profiles),
        "graph": sorted(sorted(edge) for edge in run.graph.edges),
        "pilot set": run.pilots.digest(),
    }
    for name, profile in run.profiles.items():
        own = agent_identity(profile)
        identity |= {f"{what} of agent {name!r}": value for what, value in own.items()}
    return identity
