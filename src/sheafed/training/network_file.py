"""A trained network as one file, `last.safetensors` or `best.safetensors`.

It holds what a checkpoint holds, so that the network can be used and trained on: weights,
optimisers, whitening, maps, graph, method and records. Beside them it has what tells whether it is
loaded into the agents that it was written of: their class names, what torch prints of their
modules, and their latents of some pilots.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sheafed.atomic_io import write_atomically
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import BEST, LAST, SUMMARY
from sheafed.errors import CheckpointError
from sheafed.methods.method_table import method_table
from sheafed.methods.node import Node
from sheafed.training.encoder_check import check_latents, layers_of
from sheafed.training.membership_checks import is_homogeneous
from sheafed.training.run_checkpoint import agent_file, identity
from sheafed.training.summary import summarise

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

KIND = "network"
WHICH = {"last": LAST, "best": BEST}


def save_network(network: Network, path: Path) -> None:
    """Write everything that using the network and training it on depends on."""
    parts, group = path.with_suffix(".parts"), network.group
    if group.single:
        agents = {name: _agent_state(node) for name, node in network.nodes.items()}
        save_checkpoint(path, _state(network, agents))
        return
    for name, node in network.nodes.items():
        save_checkpoint(agent_file(parts, name), _agent_state(node))
    group.gather(None)  # all parts are written
    if group.rank == 0:
        agents = {name: load_checkpoint(agent_file(parts, name)) for name in network.metadata}
        save_checkpoint(path, _state(network, agents))
        shutil.rmtree(parts)


def write_results(network: Network, out: Path) -> None:
    """Write the network as it is now, and the summary."""
    save_network(network, out / LAST)
    if network.group.rank == 0:
        write_atomically(out / SUMMARY, json.dumps(summarise(network), indent=2).encode())


def read_network(directory: Path, which: str) -> tuple[Path, dict[str, Any]]:
    """Return the path and the content of the file of a run directory."""
    path = directory / WHICH[which]
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: {_missing(directory, which)}")
    state = load_checkpoint(path)
    if state.get("kind") == KIND:
        return path, state
    if sorted(state) == ["encoder", "head"]:
        raise CheckpointError(
            f"{path} holds the weights of a single agent, which ran in a process of its own; "
            "agents of a network of peers cannot be loaded together: load these weights into its "
            "encoder and head, and map latents with sheafed.align"
        )
    raise CheckpointError(
        f"{path} is not a whole network: it holds {sorted(state)}, expected maps and whitening "
        "beside the weights; it was written by an earlier version: train again with this one"
    )


def _state(network: Network, agents: Mapping[str, Any]) -> dict[str, Any]:
    history = network.history.state({})
    for key in ("seconds", "ledger", "conditions"):  # equal runs write equal files
        del history[key]
    return {
        "kind": KIND,
        "identity": identity(network),
        "method": method_table(network.method),
        "homogeneous": is_homogeneous(network),
        "pilots": {"total": network.pilots.total, "shared": network.pilots.shared},
        **history,
        "agents": dict(agents),
    }


def _agent_state(node: Node) -> dict[str, Any]:
    agent = node.agent
    return {
        "agent": agent.state(),
        "node": node.state(),
        "classes": None if agent.classes is None else list(agent.classes),
        "latents": check_latents(agent, node.context.pilots),
        "layers": layers_of(agent),
    }


def _missing(directory: Path, which: str) -> str:
    if which == "best" and (directory / LAST).exists():
        records = load_checkpoint(directory / LAST).get("metrics", [])
        if any(record.get("validation_score") is not None for record in records):
            return (
                "the best network is in the directory of an earlier training, which this one goes "
                "on from or was saved of; load it from there, or which='last' here"
            )
        return (
            "there is no best network without validation data of all agents; load which='last', "
            "or give every agent validation data and train again"
        )
    if (directory / BEST).exists():
        return "the training has not ended; resume it, or load which='best'"
    return (
        "the directory holds no network; give the out= of a training that has ended, or resume it"
    )
