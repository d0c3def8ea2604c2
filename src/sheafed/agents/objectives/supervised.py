"""Cross-entropy on labels, and on class probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.objective import Objective, ObjectiveOptions
from sheafed.agents.samples import INTEGERS, Batch, as_labels
from sheafed.errors import DtypeError, InputError, ShapeError
from sheafed.options import options

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def cross_entropy(agent: Agent, batch: Batch) -> Tensor:
    r"""Return $\mathcal L_i = \frac1n \sum_n \ell(h(f(x^n)), y^n)$ (eq. local-loss-supervised).

    >>> from sheafed.agents import Agent
    >>> data = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    >>> agent = Agent("ada", nn.Linear(2, 3), nn.Linear(3, 2), data=data)
    >>> cross_entropy(agent, Batch(*data)).shape
    torch.Size([])
    """
    head, targets = head_and_targets(agent, batch)
    return label_loss(agent, head(agent.encode(batch.inputs)), targets)


def label_loss(agent: Agent, scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of scores `(n, classes)`, or raise if targets are no labels.

    Class probabilities of the shape of the scores are targets too, as in torch.
    """
    if targets.dtype in INTEGERS:
        check_labels(agent.name, targets, scores)
    elif not targets.is_floating_point() or targets.shape != scores.shape:
        raise DtypeError(
            f"agent {agent.name!r}: labels must be whole numbers from 0 on, got {targets.dtype} of "
            f"shape {tuple(targets.shape)}; convert them by .long(), or, if the head predicts "
            "numbers, take the objective mean_squared_error"
        )
    return nn.functional.cross_entropy(scores, as_labels(targets))


def check_labels(name: str, labels: Tensor, scores: Tensor) -> None:
    """Raise unless there is one label per sample, and a score for every label."""
    expected = (*scores.shape[:1], *scores.shape[2:])
    if labels.shape != expected:
        several = (
            "several labels per sample need an objective of your own, e.g. binary cross-entropy "
            "with logits, and a Metric of your own without a task"
        )
        raise ShapeError(
            f"agent {name!r}: labels must have the shape {expected}, one per sample, got "
            f"{tuple(labels.shape)}; {several if labels.shape[1:].numel() > 1 else 'flatten them'}"
        )
    classes = scores.shape[1]
    whole = as_labels(labels)
    for label in (int(whole.min()), int(whole.max())):
        if not 0 <= label < classes:
            raise InputError(
                f"agent {name!r}: labels must lie in 0 to {classes - 1}, since its head has "
                f"{classes} outputs, got {label}; number the classes from 0, give the head an "
                "output per class, or, if training samples are unlabelled, use PseudoLabels; leave "
                "samples without a label out of validation and test data"
            )


@options
class CrossEntropyOptions(ObjectiveOptions):
    """Train encoder and head by cross-entropy on labels."""

    needs_labels = True
    name: Literal["cross-entropy"] = field(default="cross-entropy", kw_only=True, repr=False)

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        return cross_entropy


def soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    r"""Return $-\frac1n \sum_n \sum_c b^n_c \log \mathrm{softmax}(logits^n)_c$.

    >>> soft_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor(0.6931)
    """
    return -(probabilities * torch.log_softmax(logits, dim=-1)).sum(-1).mean()


def head_and_targets(
    agent: Agent, batch: Batch, objective: str = "cross-entropy"
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the agent's head and the batch's targets, or raise if either is missing."""
    if agent.head is None or batch.targets is None:
        missing = "head" if agent.head is None else "labels"
        columns = isinstance(batch.inputs, Mapping) and batch.targets is None
        raise InputError(
            f"agent {agent.name!r} has no {missing}, which {objective} needs; add it, or give "
            "another objective"
            + (f", or name one of its columns {list(batch.inputs)} by target=" * columns)
        )
    return agent.apply_head, batch.targets
