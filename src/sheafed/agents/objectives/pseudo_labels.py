"""Pseudo-labels (FixMatch, Sohn et al., NeurIPS 2020): learn from few labels and many inputs."""

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
"""The target of a sample whose label is not known."""

WEAK = Augmentation(rotation=0, erasing=0, noise=0)
STRONG = Augmentation(rotation=15, noise=0.1)


def pseudo_label_loss(weak: Tensor, strong: Tensor, confidence: float) -> Tensor:
    r"""Return $\frac1n \sum_k [\max_c p_k^c \ge \tau]\, \ell(s_k, \arg\max_c p_k^c)$.

    Args:
        weak: scores `(n, classes)` of weakly augmented inputs, whose softmax is p; constants.
        strong: scores s of strongly augmented ones.
        confidence: $\tau$.
    """
    certainty, labels = torch.softmax(weak.detach(), dim=-1).max(-1)
    losses = nn.functional.cross_entropy(strong, labels, reduction="none")
    return (losses * (certainty >= confidence)).sum() / max(1, len(weak))


@dataclass(frozen=True)
class PseudoLabels:
    """Cross-entropy where there are labels, and on what the head is sure of where there are none.

    A sample without a label has the target `UNLABELLED`, -1. What the head makes of it weakly
    augmented is, if it is confident, the label of it strongly augmented.

    Args:
        confidence: the probability that a guess must reach to be learnt from.
        weight: of the samples without labels.
        weak: the augmentation whose guess is taken, also of samples with labels.
        strong: the augmentation that learns it.
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
        """Return both losses; all of the batch is encoded at once, for batch norm to see it."""
        if agent.head is None or batch.targets is None:
            raise InputError(
                f"agent {agent.name!r} has no {'head' if agent.head is None else 'targets'}, which "
                f"pseudo-labels need; give it some, {UNLABELLED} where a label is not known"
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
    """Return the labels `(n,)` with all but a fraction of each class's replaced by `UNLABELLED`.

    Every class keeps at least one, and about the fraction `kept` of its own.
    """
    if not 0 < kept <= 1:
        raise InputError(f"the fraction of labels kept must lie in (0, 1], got {kept}")
    hidden = torch.full_like(labels, UNLABELLED)
    for y in sorted(set(labels.tolist())):
        of_class = (labels == y).nonzero()[:, 0]
        order = of_class[torch.randperm(len(of_class), generator=generator)]
        hidden[order[: max(1, round(kept * len(order)))]] = y
    return hidden
