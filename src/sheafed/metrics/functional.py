"""Metrics as functions of a head's outputs `(n, ...)` and of targets, which return a number.

Where a metric is not defined, as R² of constant targets, it is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.errors import DtypeError, ShapeError


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Return the fraction of scores `(n, classes)` that are largest at the label.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    0.5
    """
    return class_accuracy(scores.argmax(-1), labels)


def class_accuracy(classes: Tensor, labels: Tensor) -> float:
    """Return the fraction of classes `(n,)` that are the label."""
    _check_labels(classes, labels)
    return float((classes == labels).double().mean())


def top_k_accuracy(scores: Tensor, labels: Tensor, k: int = 5) -> float:
    """Return the fraction of labels that have one of the k largest scores `(n, classes)`.

    >>> top_k_accuracy(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([1]), k=2)
    1.0
    """
    likely = scores.topk(min(k, scores.shape[-1]), dim=-1).indices
    _check_labels(likely[..., 0], labels)
    return float((likely == labels[..., None]).any(-1).double().mean())


def macro_f1(scores: Tensor, labels: Tensor) -> float:
    """Return the mean F1 of the classes that are labels or predicted, whatever their numbers.

    >>> macro_f1(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]]), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    classes = scores.argmax(-1).flatten()
    _check_labels(classes, labels.flatten())
    present = torch.unique(torch.cat([classes, labels.flatten()]))
    predicted, true = classes == present[:, None], labels.flatten() == present[:, None]
    both, either = (predicted & true).sum(1), predicted.sum(1) + true.sum(1)
    return float((2 * both / either.double()).mean())


def r2(outputs: Tensor, targets: Tensor) -> float:
    r"""Return $1 - \sum_n (y_n - \hat y_n)^2 / \sum_n (y_n - \bar y)^2$, the mean over outputs.

    1 is perfect; the mean of the targets has 0.

    >>> r2(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))
    0.5
    """
    outputs, targets = _in_float64(outputs, targets)
    variation = (targets - targets.mean(0)).square().sum(0)
    unexplained = (targets - outputs).square().sum(0)
    undefined = variation.new_full((), float("nan"))
    return float((1 - unexplained / torch.where(variation > 0, variation, undefined)).mean())


def mse(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean squared error over all values.

    >>> mse(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    2.0
    """
    outputs, targets = _in_float64(outputs, targets)
    return float((outputs - targets).square().mean())


def mae(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean absolute error over all values.

    >>> mae(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    1.0
    """
    outputs, targets = _in_float64(outputs, targets)
    return float((outputs - targets).abs().mean())


def in_shape_of(targets: Tensor, outputs: Tensor) -> Tensor:
    """Return outputs `(n, 1)` as `(n,)` or the reverse, where that is the shape of the targets.

    Subtracting one from the other would give `(n, n)`. Other outputs are returned as they are.

    >>> in_shape_of(torch.zeros(3), torch.zeros(3, 1)).shape
    torch.Size([3])
    """
    rows = tuple(outputs.shape[:1])
    one_each = {tuple(outputs.shape), tuple(targets.shape)} == {rows, (*rows, 1)}
    return outputs.reshape(targets.shape) if one_each else outputs


def matched(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return outputs in the shape of the targets; raise if there is not one for each value."""
    outputs = in_shape_of(targets, outputs)
    if outputs.shape != targets.shape:
        raise ShapeError(
            f"the head gives {tuple(outputs.shape)} for targets {tuple(targets.shape)}; give it "
            "one output per target value"
        )
    return outputs


def _in_float64(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return matched(outputs, targets).cpu().double(), targets.cpu().double()


def _check_labels(classes: Tensor, labels: Tensor) -> None:
    if labels.is_floating_point():
        raise DtypeError(
            f"targets of {labels.dtype} are no classes; convert labels by .long(), or, if the head "
            "predicts numbers, take the metric 'r2', 'mse' or 'mae'"
        )
    if classes.shape != labels.shape:
        raise ShapeError(
            f"the head tells {tuple(classes.shape)} classes for labels {tuple(labels.shape)}; give "
            "one label per sample"
        )
