"""The values of metrics in records, agents and edges, whatever the metric is called.

Their keys are `private_accuracy`, `communication_accuracy` and `oracle_accuracy`, or those of
another metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sheafed.metrics.metric import ACCURACY, metrics_of
from sheafed.report.run_reader import RunDirectory
from sheafed.report.style import ACCURACY as ACCURACY_COLOURS

KINDS = ("private", "communication", "oracle")


def metric_names(runs: Iterable[RunDirectory]) -> list[str]:
    """Return the metrics of some runs, accuracy if nothing is known of them."""
    found = dict.fromkeys(name for run in runs for name in metrics_of(run.summary))
    return list(found) or [ACCURACY.name]


def greater_is_better(run: RunDirectory, metric: str) -> bool:
    """Return whether a greater value is a better one; an old summary knows only accuracy."""
    known = run.summary.get("metrics", {}).get(metric, {})
    return bool(known.get("greater_is_better", True))


def value_of(item: Mapping[str, Any], kind: str) -> float | None:
    """Return the private, communication or oracle value of an agent or an edge.

    Of an agent that reads senders with other metrics it is the value of its own.

    >>> value_of({"private_r2": 0.5, "communication_mse": 2.0, "communication_r2": 0.25},
    ...     "communication")
    0.25
    """
    own = [f"{kind}_{metric}" for metric in metrics_of(item)]
    keys = own or [key for key in item if key.startswith(f"{kind}_")]
    value: float | None = next((item[key] for key in keys if key in item), None)
    return value


def metric_label(runs: Iterable[RunDirectory]) -> str:
    return " or ".join(name.replace("_", " ") for name in metric_names(runs))


def colour_scale(run: RunDirectory) -> str:
    """Return the colours of values: bright is good, so those of errors are reversed."""
    errors = not any(greater_is_better(run, metric) for metric in metric_names([run]))
    return f"{ACCURACY_COLOURS}_r" if errors else ACCURACY_COLOURS


def is_accuracy(runs: Iterable[RunDirectory]) -> bool:
    """Return whether all values lie between 0 and 1, as accuracies do."""
    return metric_names(runs) == [ACCURACY.name]
