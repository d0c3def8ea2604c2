"""Records and summaries: what the files of a run directory say of a network."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.evaluation import PeerEvaluator
from sheafed.evaluation.result import Evaluation, mean
from sheafed.training.history import Record
from sheafed.training.run_settings import run_settings
from sheafed.transport import WaitPolicy

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


def measure(
    network: Network, policy: WaitPolicy, totals: Mapping[str, Sequence[float]], oracle: bool
) -> Record:
    """Evaluate the agents as they are; return the record of it, with the means of the totals."""
    history = network.history
    history.evaluation = found = network.measure(policy, "test", oracle)
    record: Record = {"epoch": history.epoch, "round": history.rounds, **found.summary()}
    if not policy.synchronous:  # a second evaluation by messages would wait once more
        record["validation_private_accuracy"] = mean(_private_validation(network))
    elif all(known.has_validation for known in network.metadata.values()):
        validation = network.measure(policy, "validation", oracle=False).summary()
        parts = {k: validation[k] for k in ("private_accuracy", "communication_accuracy")}
        record |= {f"validation_{key}": value for key, value in parts.items()}
        record["validation_score"] = mean(v for v in parts.values() if v is not None)
    record |= {key: mean(values) for key, values in totals.items()}
    record["bytes_sent"] = history.ledger.bytes_sent()
    record["payload_bytes"] = history.ledger.payload_bytes()
    record["agents"] = {name: _accuracies(found, name) for name in network.metadata}
    return record


def summarise(network: Network) -> Record:
    """Return the figures of a run, the latest evaluation in detail."""
    history, graph = network.history, network.graph
    latest = history.evaluation or Evaluation()
    traffic = history.ledger.per_edge()
    return {
        "method": network.method.label,
        "seed": history.seed,
        "settings": run_settings(network),
        "epochs": history.epoch,
        **latest.summary(),
        "whitenings": history.whitenings,
        "best": history.best,
        "bytes_sent": history.ledger.bytes_sent(),
        "payload_bytes": history.ledger.payload_bytes(),
        "rounds": history.rounds,
        "seconds": history.seconds,
        "peak_memory_bytes": peak_memory(),
        "agents": {
            name: {
                "dimension": known.dimension,
                "neighbours": sorted(graph.neighbors(name)),
                "training_samples": known.training_samples,
                "objective": known.objective,
                **_accuracies(latest, name),
            }
            for name, known in network.metadata.items()
        },
        "edges": [
            {
                "sender": sender,
                "receiver": receiver,
                "communication_accuracy": latest.communication.get((sender, receiver)),
                "oracle_accuracy": latest.oracle.get((sender, receiver)),
                "misalignment": latest.misalignment.get(
                    (sender, receiver), latest.misalignment.get((receiver, sender))
                ),
                "bytes_sent": sum(traffic[sender, receiver][1:])
                if (sender, receiver) in traffic
                else 0,
            }
            for receiver in network.metadata
            for sender in sorted(graph.neighbors(receiver))
        ],
    }


def peak_memory() -> int | None:
    """Return the peak resident memory of this process in bytes; None on Windows."""
    if sys.platform == "win32":
        return None
    status = Path("/proc/self/status")
    if status.exists():  # on Linux `ru_maxrss` may be that of the process that started this one
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _private_validation(network: Network) -> Iterator[float]:
    for node in network.nodes.values():
        accuracy = PeerEvaluator(node, 0, "validation").private_accuracy()
        if accuracy is not None:
            yield accuracy


def _accuracies(evaluation: Evaluation, name: str) -> Record:
    return {
        "private_accuracy": evaluation.private.get(name),
        "communication_accuracy": evaluation.communication_of(name),
    }
