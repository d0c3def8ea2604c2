"""The figures of a whole network, put together from what its agents wrote."""

from __future__ import annotations

import json
from pathlib import Path

from sheafed.checkpointing.run_directory import SUMMARY
from sheafed.evaluation.evaluation import Evaluation
from sheafed.training.run import Record


def gather(directory: Path) -> Record:
    """Return the summary of a network from those of its agents, one per subdirectory.

    What nobody could measure, because a neighbour was away, is absent.
    """
    found = [json.loads(path.read_text()) for path in sorted(directory.glob(f"*/{SUMMARY}"))]
    evaluation = Evaluation()
    for summary in found:
        name, last = summary["agent"], summary["last"] or {}
        if last.get("private_accuracy") is not None:
            evaluation.private[name] = last["private_accuracy"]
        for receiver, accuracy in last.get("understood_by", {}).items():
            evaluation.communication[name, receiver] = accuracy
        for tail, residual in last.get("misaligned_with", {}).items():
            evaluation.misalignment[name, tail] = residual
    return {
        **evaluation.summary(),
        "bytes_sent": sum(summary["bytes_sent"] for summary in found),
        "agents": {
            summary["agent"]: {
                "dimension": summary["dimension"],
                "neighbours": summary["neighbours"],
                "training_samples": summary["training_samples"],
                "rounds": summary["rounds"],
                "missed_rounds": summary["missed_rounds"],
                "private_accuracy": evaluation.private.get(summary["agent"]),
                "communication_accuracy": evaluation.communication_of(summary["agent"]),
            }
            for summary in found
        },
        "edges": [
            {"sender": sender, "receiver": receiver, "communication_accuracy": accuracy}
            for (sender, receiver), accuracy in sorted(evaluation.communication.items())
        ],
    }
