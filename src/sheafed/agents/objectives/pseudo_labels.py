"""Pseudo-labels (FixMatch, Sohn et al., NeurIPS 2020): few labels and many unlabelled inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sheafed.agents.objectives.augmentations import (
    AnyAugmentation,
    Augment,
    Augmentation,
    augmented,
)
from sheafed.agents.objectives.objective import ObjectiveOptions
from sheafed.agents.objectives.supervised import label_loss
from sheafed.agents.samples import Batch
from sheafed.errors import DtypeError, InputError
from sheafed.options import Fraction, NotNegative, options
from sheafed.tensor_tree import concatenate_rows, select_rows

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

UNLABELLED = -1
"""The target of a sample without a label."""


def pseudo_label_loss(weak: Tensor, strong: Tensor, confidence: float) -> Tensor:
    r"""Return $\frac1n \sum_k [\max_c p_k^c \ge \tau]\, \ell(s_k, \arg\max_c p_k^c)$.

    Args:
        weak: scores `(n, classes)` of weakly augmented inputs, whose softmax is p; no gradient.
        strong: scores s `(n, classes)` of the same inputs, strongly augmented.
        confidence: $\tau$.

    >>> unsure, sure = torch.tensor([[0.1, 0.0]]), torch.tensor([[9.0, 0.0]])
    >>> pseudo_label_loss(unsure, strong=unsure, confidence=0.9)
    tensor(0.)
    >>> bool(pseudo_label_loss(sure, strong=unsure, confidence=0.9) > 0)
    True
    """
    certainty, labels = torch.softmax(weak.detach(), dim=-1).max(-1)
    losses = nn.functional.cross_entropy(strong, labels, reduction="none")
    return (losses * (certainty >= confidence)).sum() / max(1, len(weak))


@options
class PseudoLabels(ObjectiveOptions):
    """Cross-entropy on labels, and on the head's own confident predictions where there are none.

    A sample without a label has the target `UNLABELLED`, -1. If the head's prediction for its weak
    augmentation is confident, it becomes the label of its strong augmentation.

    >>> objective = PseudoLabels(confidence=0.9)

    Args:
        confidence: the least probability of a prediction that becomes a label.
        weight: of the loss on samples without labels.
        augmentation: the strong one, that is trained with pseudo-labels.
        weak: the one for predictions, and for samples with labels; by default the shift of
            `augmentation` alone.
        labelled: the fraction of its training labels that a config leaves to the agent (see
            `hide_labels`), at least one of each class. In Python the targets say it.
    """

    needs_labels = True
    name: Literal["pseudo-labels"] = field(default="pseudo-labels", kw_only=True, repr=False)
    confidence: Fraction = 0.95
    weight: NotNegative = 1.0
    augmentation: AnyAugmentation = Augmentation(rotation=15, noise=0.1)
    weak: AnyAugmentation | None = None
    labelled: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.1

    def __post_init__(self) -> None:
        self._weak_augmentation()

    def _weak_augmentation(self) -> Augment:
        if self.weak is not None:
            return self.weak
        if isinstance(self.augmentation, Augmentation):
            return Augmentation(self.augmentation.shift, rotation=0, erasing=0, noise=0)
        raise InputError("with an augmentation of your own, give weak= too")

    def build(self, latent: int, inputs: Sequence[int]) -> PseudoLabels:
        return self

    def __call__(self, agent: Agent, batch: Batch) -> Tensor:
        # One pass over the whole batch, so that batch norm sees it all.
        if agent.head is None or batch.targets is None:
            raise InputError(
                f"agent {agent.name!r} has no {'head' if agent.head is None else 'targets'}, which "
                f"pseudo-labels need; add it, with the target {UNLABELLED} for unlabelled samples"
            )
        if batch.targets.is_floating_point():
            raise DtypeError(
                f"agent {agent.name!r}: pseudo-labels are classes, and its targets are "
                f"{batch.targets.dtype}; convert labels by .long(), or, if the head predicts "
                "numbers, take the objective mean_squared_error"
            )
        known = batch.targets != UNLABELLED
        unlabelled = select_rows(batch.inputs, ~known)
        weak_inputs = augmented(agent, self._weak_augmentation(), batch.inputs)
        strong_inputs = augmented(agent, self.augmentation, unlabelled)
        scores = agent.apply_head(agent.encode(concatenate_rows([weak_inputs, strong_inputs])))
        weak, strong = torch.split(scores, [len(known), int((~known).sum())])
        loss = self.weight * pseudo_label_loss(weak[~known], strong, self.confidence)
        if bool(known.any()):
            loss = loss + label_loss(agent, weak[known], batch.targets[known])
        return loss


def hide_labels(labels: Tensor, kept: float, generator: torch.Generator) -> Tensor:
    """Return the labels `(n,)` with all but a fraction of each class replaced by `UNLABELLED`.

    Every class keeps at least one label.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> (hide_labels(labels, 0.5, torch.Generator().manual_seed(0)) == UNLABELLED).sum()
    tensor(3)
    """
    if not 0 < kept <= 1:
        raise InputError(f"the fraction of labels kept must lie in (0, 1], got {kept}")
    hidden = torch.full_like(labels, UNLABELLED)
    for y in sorted(set(labels.tolist())):
        of_class = (labels == y).nonzero()[:, 0]
        order = of_class[torch.randperm(len(of_class), generator=generator)]
        hidden[order[: max(1, round(kept * len(order)))]] = y
    return hidden
