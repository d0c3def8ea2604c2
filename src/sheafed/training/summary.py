"""Records and summaries: what the files of a run directory say of a network."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.evaluation import PeerEvaluator
from sheafed.evaluation.result import Evaluation, mean
from sheafed.metrics.metric import ACCURACY
from sheafed.training.history import Record
from sheafed.training.run_settings import run_settings
from sheafed.training.scores import metric_signs, score
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
    signs = metric_signs(network.metadata)
    history.errors = frozenset(metric for metric, sign in signs.items() if sign < 0)
    if not policy.synchronous:  # a second evaluation by messages would wait once more
        for metric in signs:
            value = mean(_private_validation(network, metric))
            record[f"validation_private_{metric}"] = value
    elif all(known.has_validation for known in network.metadata.values()):
        validation = network.measure(policy, "validation", oracle=False).summary()
        for metric in signs:
            for key in (f"private_{metric}", f"communication_{metric}"):
                record[f"validation_{key}"] = validation[key]
        record["validation_score"] = score(validation, signs)
    record |= {key: mean(values) for key, values in totals.items()}
    record["bytes_sent"] = history.ledger.bytes_sent()
    record["payload_bytes"] = history.ledger.payload_bytes()
    here = {name: agent.order.passes for name, agent in network.agents.items()}
    passes = {name: value for part in network.group.gather(here) for name, value in part.items()}
    record["agents"] = {
        name: {"passes": passes[name], **found.of_agent(name)} for name in network.metadata
    }
    return record


def measured_keys(network: Network) -> set[str]:
    """Return the keys that records have of the agents' metrics, whatever a method logs."""
    metrics = {name: known.metric for name, known in network.metadata.items()}
    found = set(Evaluation(metrics=metrics).summary())
    if all(known.has_validation for known in network.metadata.values()):
        kinds = ("private", "communication")
        found |= {f"validation_{kind}_{metric}" for kind in kinds for metric in metrics.values()}
        found.add("validation_score")
    return found


def summarise(network: Network) -> Record:
    """Return the figures of a run, the latest evaluation in detail."""
    history, graph = network.history, network.graph
    latest = history.evaluation or Evaluation(
        metrics={name: known.metric for name, known in network.metadata.items()}
    )
    signs = metric_signs(network.metadata)
    traffic = history.ledger.per_edge()
    recorded = (history.last or {}).get("agents", {})
    return {
        "method": network.method.label,
        "seed": history.seed,
        "settings": run_settings(network),
        "changes": history.changes,
        **({} if history.vectorized is None else {"vectorized": history.vectorized}),
        "epochs": history.epoch,
        **({} if set(signs) == {ACCURACY.name} else {"metrics": _directions(signs)}),
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
                "passes": recorded.get(name, {}).get("passes"),
                **latest.of_agent(name),
            }
            for name, known in network.metadata.items()
        },
        "edges": [
            {
                "sender": sender,
                "receiver": receiver,
                **latest.of_edge(sender, receiver),
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


def _private_validation(network: Network, metric: str) -> Iterator[float]:
    for node in network.nodes.values():
        value = PeerEvaluator(node, 0, "validation").private_value()
        if value is not None and node.agent.metric.name == metric:
            yield value


def _directions(signs: Mapping[str, int]) -> Record:
    """Return what the summary of a network with other metrics than accuracy says of them."""
    return {metric: {"greater_is_better": sign > 0} for metric, sign in signs.items()}
