"""Pseudo-labels (FixMatch, Sohn et al., NeurIPS 2020): few labels and many unlabelled inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.augmentations import Augment, Augmentation
from sheafed.agents.samples import Batch
from sheafed.errors import InputError
from sheafed.linalg.checks import check_fraction

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

UNLABELLED = -1
"""The target of a sample without a label."""

WEAK = Augmentation(rotation=0, erasing=0, noise=0)
STRONG = Augmentation(rotation=15, noise=0.1)


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


@dataclass(frozen=True)
class PseudoLabels:
    """Cross-entropy on labels, and on the head's own confident predictions where there are none.

    A sample without a label has the target `UNLABELLED`, -1. If the head's prediction for its weak
    augmentation is confident, it becomes the label of its strong augmentation.

    >>> objective = PseudoLabels(confidence=0.9)

    Args:
        confidence: the least probability of a prediction that becomes a label.
        weight: of the loss on samples without labels.
        weak: the augmentation for predictions, and for samples with labels.
        strong: the augmentation that is trained with pseudo-labels.
    """

    confidence: float = 0.95
    weight: float = 1.0
    weak: Augment = WEAK
    strong: Augment = STRONG

    def __post_init__(self) -> None:
        check_fraction("confidence", self.confidence)
        if not 0 <= self.weight < float("inf"):
            raise InputError(f"the weight of pseudo-labels must be at least 0, got {self.weight}")

    def __call__(self, agent: Agent, batch: Batch) -> Tensor:
        # One pass over the whole batch, so that batch norm sees it all.
        if agent.head is None or batch.targets is None:
            raise InputError(
                f"agent {agent.name!r} has no {'head' if agent.head is None else 'targets'}, which "
                f"pseudo-labels need; add it, with the target {UNLABELLED} for unlabelled samples"
            )
        known = batch.targets != UNLABELLED
        unlabelled = batch.inputs[~known]
        inputs = torch.cat([self.weak(batch.inputs), self.strong(unlabelled)])
        scores = agent.head(agent.encode(inputs))
        weak, strong = scores.split([len(known), len(unlabelled)])
        loss = self.weight * pseudo_label_loss(weak[~known], strong, self.confidence)
        if bool(known.any()):
            loss = loss + nn.functional.cross_entropy(weak[known], batch.targets[known])
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
