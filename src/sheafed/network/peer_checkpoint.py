"""The checkpoint of one agent among peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.network.deadline_policy import DeadlinePolicy
from sheafed.training.encoder_check import checked_state
from sheafed.training.history import Totals
from sheafed.training.live_network import Network
from sheafed.training.run_identity import (
    agent_identity,
    check_identity,
    load_states,
    method_identity,
)


def save(
    path: Path, network: Network, policy: DeadlinePolicy, totals: Mapping[str, Sequence[float]]
) -> None:
    """Write everything that the rest of the training depends on."""
    (node,) = network.nodes.values()
    state = {
        "identity": _identity(network),
        **network.history.state(totals),
        **policy.state(),
        "peers": node.peers,
        "agent": checked_state(node),
        "node": node.state(),
    }
    save_checkpoint(path, state)


def restore(path: Path, network: Network, policy: DeadlinePolicy) -> Totals:
    """Go on from a checkpoint; the neighbours' settings are known from then.

    Returns the logs since the last evaluation.
    """
    (node,) = network.nodes.values()
    state = load_checkpoint(path)
    check_identity(path, state, _identity(network))
    node.peers = state["peers"]
    node.prepare()
    load_states(path, node, state["agent"], state["node"])
    policy.load_state(state)
    return network.history.load_state(state)


def _identity(network: Network) -> dict[str, Any]:
    ((name, node),) = network.nodes.items()
    return {
        **node.shared_settings(),
        **method_identity(network.method),
        "name": name,
        "seed": network.history.seed,
        "neighbours": list(node.neighbours),
        **agent_identity(network.metadata[name]),
    }
