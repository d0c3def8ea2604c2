"""What the head of an agent does: it tells classes apart, or it predicts numbers.

Metrics and targets must suit it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.objectives import Objective, cross_entropy, mean_squared_error
from sheafed.agents.samples import LocalData
from sheafed.errors import DtypeError, NonFiniteError
from sheafed.metrics.metric import METRICS, Metric
from sheafed.tensor_tree import count_non_finite


def is_regression(metric: Metric, objective: Objective, targets: Tensor | None) -> bool:
    """Return whether a head predicts numbers: by the metric's task, else by training targets.

    Classes are one whole number per sample. Several values per sample are numbers, of any type: of
    several labels more than one may be right, so they are no classes to choose from.
    """
    if metric.task is not None:
        return metric.task == "regression"
    if targets is None or objective is cross_entropy:  # which takes class probabilities too
        return False
    return targets.is_floating_point() or targets.shape[1:].numel() > 1


def check_metric(metric: Metric, data: LocalData) -> None:
    """Raise if a metric of classes is to judge by targets that are none.

    The first sample of each set that is evaluated is read.
    """
    if metric.task != "classification":
        return
    for samples in (data.validation, data.test):
        targets = None if samples is None else samples.batch(torch.arange(1)).targets
        if targets is not None and targets.is_floating_point():
            raise DtypeError(
                f"the metric {metric.name!r} is of classes, and the targets to evaluate on are "
                f"{targets.dtype}; convert labels by .long(), or, if the head predicts numbers, "
                "give objective=sheafed.agents.objectives.mean_squared_error, which is judged by "
                "metric='r2' unless you give another, or an objective of your own with a metric"
            )


def check_targets(metric: Metric, objective: Objective, data: LocalData) -> None:
    """Raise if targets in memory are not finite, where an objective or a metric of ours needs them.

    Those of the user's own may take NaN for what is not known.
    """
    learnt = objective in (cross_entropy, mean_squared_error)
    judged = metric == METRICS.get(metric.name)
    for split, samples, used in (
        ("train", data.train, learnt),
        ("validation", data.validation, judged),
        ("test", data.test, judged),
    ):
        targets = getattr(samples, "targets", None)
        if not used or not isinstance(targets, torch.Tensor):
            continue
        bad, total = count_non_finite(targets)
        if bad:
            raise NonFiniteError(
                f"its {split} targets hold {bad} non-finite of {total} values; clean the data, or "
                "leave these samples out"
            )
