"""Checkpoints of a whole training: it can stop anywhere and end with the same bytes.

One process writes one file. In a cluster every rank writes the state of its agents to files of
their own, in a directory named after the round; when all have, rank 0 writes the rest to the one
file, which names that directory. That file is replaced atomically: a crash at any moment leaves
the previous checkpoint whole. Both kinds can be resumed in one process or many.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sheafed.atomic_io import file_name
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import CheckpointError
from sheafed.training.encoder_check import checked_state
from sheafed.training.history import Totals
from sheafed.training.run_identity import (
    agent_identity,
    check_identity,
    load_states,
    method_identity,
)

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

PARTS = "checkpoint-"


def save(network: Network, totals: Mapping[str, Sequence[float]]) -> None:
    """Write everything that the rest of the training depends on to the run directory, if any."""
    out, group, rounds = network.out, network.group, network.history.rounds
    if out is None:
        return
    state = {"identity": identity(network), **network.history.state(totals)}
    if group.single:
        state["agents"] = {name: checked_state(node) for name, node in network.nodes.items()}
        state["nodes"] = {name: node.state() for name, node in network.nodes.items()}
    else:
        state["parts"] = f"{PARTS}{rounds}"
        for name, node in network.nodes.items():
            part = {"rounds": rounds, "agent": checked_state(node), "node": node.state()}
            save_checkpoint(agent_file(out / state["parts"], name), part)
        group.gather(None)  # all parts are written
    if group.rank == 0:
        save_checkpoint(out / CHECKPOINT, state)
        _remove_parts(out, rounds, keep=state.get("parts"))


def restore(network: Network, out: Path) -> Totals:
    """Put a network, fresh from its handshake, into the state of a checkpoint, if there is one.

    Returns the logs since the last evaluation.
    """
    path = out / CHECKPOINT
    totals: Totals = {}
    if path.exists():
        state = load_checkpoint(path)
        check_identity(path, state, identity(network))
        totals = network.history.load_state(state)
        for name, node in network.nodes.items():
            load_states(path, node, *_part(path, state, name))
    rounds = network.group.gather(network.history.rounds)
    if len(set(rounds)) > 1:
        raise CheckpointError(
            f"ranks find checkpoints of different rounds in {out}: {rounds}; it must be a "
            "directory that all of them share"
        )
    return totals


def _part(path: Path, state: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Return the states of an agent and of its node, from either kind of checkpoint."""
    if "parts" not in state:
        return state["agents"].get(name), state["nodes"].get(name)
    file = agent_file(path.parent / state["parts"], name)
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


def agent_file(directory: Path, name: str) -> Path:
    return directory / f"{file_name(name)}.safetensors"


def identity(network: Network) -> dict[str, Any]:
    """Return what makes a training the one that it is, by its name in an error."""
    found: dict[str, Any] = {
        **method_identity(network.method),
        "seed": network.history.seed,
        "rounds per epoch": network.history.schedule.rounds_per_epoch,
        "agents": list(network.metadata),
        "graph": sorted(sorted(edge) for edge in network.graph.edges),
        "pilot set": network.pilots.digest(),
    }
    for name, known in network.metadata.items():
        own = agent_identity(known)
        found |= {f"{what} of agent {name!r}": value for what, value in own.items()}
    return found
