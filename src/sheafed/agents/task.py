"""What the head of an agent does: it tells classes apart, or it predicts numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.objectives import Objective, cross_entropy
from sheafed.agents.samples import LocalData
from sheafed.errors import DtypeError
from sheafed.metrics.metric import Metric


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
