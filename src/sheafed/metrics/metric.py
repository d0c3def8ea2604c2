"""A metric: a function of outputs and targets, its name, and whether more of it is better."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.metrics import functional

Task = Literal["classification", "regression"]
Function = Callable[[Tensor, Tensor], Any]

NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


@dataclass(frozen=True)
class Metric:
    """A metric by which an agent is judged.

    >>> worst = Metric("worst", lambda y, t: (y - t).abs().max(), greater_is_better=False)
    >>> worst(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 5.0]))
    3.0

    Args:
        name: of letters, digits and underscores. Records have `private_<name>`,
            `communication_<name>` and `oracle_<name>`.
        function: from the outputs of a head `(n, ...)` and the targets `(n, ...)`, in this order,
            which is the opposite of scikit-learn's (y_true, y_pred), to a number, or an object
            with `update`, `compute` and `reset`, as those of torchmetrics. It sees
            outputs `(n, 1)` as `(n,)` where floating-point targets have that shape, and the
            reverse. A result that is None or not finite counts as absent.
        greater_is_better: False for an error.
        task: what the head does. By default it is regression if the training targets are
            floating-point numbers, or several per sample.
    """

    name: str
    function: Function
    greater_is_better: bool
    task: Task | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InputError(
                f"the name of a metric must be of at most 64 letters, digits and underscores, got "
                f"{self.name!r}"
            )
        if not callable(self.function) or not isinstance(self.greater_is_better, bool):
            raise InputError(
                f"the metric {self.name!r} needs a function of (outputs, targets) and "
                f"greater_is_better=True or False, got {self.function!r} and "
                f"{self.greater_is_better!r}"
            )

    @torch.no_grad()
    def __call__(self, outputs: Tensor, targets: Tensor) -> float | None:
        """Return the metric, computed on the CPU; None if it is not defined here."""
        outputs, targets = outputs.cpu(), targets.cpu()
        if targets.is_floating_point():
            outputs = functional.in_shape_of(targets, outputs)
        try:
            found = _apply(self.function, outputs, targets)
            value = None if found is None else float(found)
        except Exception as problem:  # a metric may be of the user's own
            raise InputError(
                f"the metric {self.name!r} fails on outputs {tuple(outputs.shape)} and targets "
                f"{tuple(targets.shape)} of {targets.dtype}: {problem}"
            ) from problem
        return value if value is not None and math.isfinite(value) else None


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", functional.accuracy, True, "classification"),
        Metric("top_5_accuracy", functional.top_k_accuracy, True, "classification"),
        Metric("macro_f1", functional.macro_f1, True, "classification"),
        Metric("r2", functional.r2, True, "regression"),
        Metric("mse", functional.mse, False, "regression"),
        Metric("mae", functional.mae, False, "regression"),
    )
}
"""The metrics that have a name."""
ACCURACY = METRICS["accuracy"]


def as_metric(given: object) -> Metric:
    """Turn the name of a metric, or a callable that has `higher_is_better`, into a `Metric`.

    Those of torchmetrics have it; `R2Score()` is called `r2_score`.

    >>> as_metric("mse").greater_is_better
    False
    """
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        if given not in METRICS:
            raise InputError(
                f"unknown metric {given!r}; metrics with a name: {', '.join(METRICS)}; for another "
                "give sheafed.metrics.Metric(name, function, greater_is_better=...)"
            )
        return METRICS[given]
    direction = getattr(given, "higher_is_better", None)
    if not callable(given) or not isinstance(direction, bool):
        raise InputError(
            f"cannot tell whether a greater value of {given!r} is better; give "
            "sheafed.metrics.Metric(name, function, greater_is_better=...)"
        )
    return Metric(_name_of(given), given, direction)


def metrics_of(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics that a record or a summary has keys for.

    >>> metrics_of({"epoch": 3, "private_r2": 0.5, "communication_r2": None})
    ['r2']
    """
    return [key.removeprefix("private_") for key in record if key.startswith("private_")]


def describe_metrics(record: Mapping[str, Any]) -> str:
    """Return the private and communicated values of a record as text.

    >>> describe_metrics({"private_accuracy": 0.5, "communication_accuracy": None})
    'private 0.500 communicated -'
    >>> describe_metrics({"private_r2": 0.5, "communication_r2": 0.25})
    'private r2 0.500 communicated r2 0.250'
    """
    words = []
    for metric in metrics_of(record):
        name = "" if metric == ACCURACY.name else f"{metric} "
        for kind, word in (("private", "private"), ("communication", "communicated")):
            value = record[f"{kind}_{metric}"]
            words.append(f"{word} {name}{'-' if value is None else f'{value:.3f}'}")
    return " ".join(words)


def _apply(function: Any, outputs: Tensor, targets: Tensor) -> Any:
    if not all(hasattr(function, name) for name in ("update", "compute", "reset")):
        return function(outputs, targets)
    function.reset()
    function.update(outputs, targets)
    value = function.compute()
    function.reset()  # what it has collected is not kept
    return value


def _name_of(given: object) -> str:
    name = getattr(given, "__name__", type(given).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
