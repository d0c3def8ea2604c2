"""The summary of one peer, and that of a whole network from those of its peers."""

from __future__ import annotations

import json
from pathlib import Path

from sheafed.checkpointing.run_directory import SUMMARY
from sheafed.evaluation.result import Evaluation
from sheafed.methods.node import Node
from sheafed.metrics.metric import metrics_of
from sheafed.network.deadline_policy import DeadlinePolicy
from sheafed.training.history import Record
from sheafed.training.live_network import Network
from sheafed.training.summary import summarise


def summarise_peer(network: Network, node: Node, policy: DeadlinePolicy) -> Record:
    """Return the figures of one agent: its edges are those on which it is the receiver."""
    return {
        "agent": node.name,
        **summarise(network),
        "missed_rounds": policy.missed,
        "left_out": dict(policy.left_out),
        "reused": dict(policy.reused),
    }


def gather(directory: Path) -> Record:
    """Return the summary of a network from those of its agents, one per subdirectory.

    What could not be measured, because a neighbour was absent, is absent.
    """
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob(f"*/{SUMMARY}"))
    ]
    evaluation = Evaluation()
    for summary in found:
        name = summary["agent"]
        (evaluation.metrics[name],) = metrics_of(summary["agents"][name])
        private = summary["agents"][name][f"private_{evaluation.metrics[name]}"]
        if private is not None:
            evaluation.private[name] = private
        for edge in summary["edges"]:
            pair = edge["sender"], edge["receiver"]
            for key, value in edge.items():
                if key.startswith("communication_") and value is not None:
                    evaluation.communication[pair] = value
                    evaluation.metrics.setdefault(pair[0], key.removeprefix("communication_"))
            if edge["misalignment"] is not None:  # the receiver is the head
                evaluation.misalignment[pair[::-1]] = edge["misalignment"]
    return {
        **evaluation.summary(),
        "bytes_sent": sum(summary["bytes_sent"] for summary in found),
        "agents": {
            summary["agent"]: summary["agents"][summary["agent"]]
            | {"rounds": summary["rounds"], "missed_rounds": summary["missed_rounds"]}
            for summary in found
        },
        "edges": [edge for summary in found for edge in summary["edges"]],
    }
