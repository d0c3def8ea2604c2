"""The objectives of several agents at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import mean_squared_error
from sheafed.agents.objectives.regression import matched_to
from sheafed.agents.objectives.supervised import label_loss
from sheafed.agents.samples import INTEGERS
from sheafed.vectorized.batches import StackedBatch
from sheafed.vectorized.stacked import Stacked


def losses(agents: Sequence[Agent], outputs: Stacked, batch: StackedBatch) -> Tensor:
    """Return the objective of every agent, `(agents,)`.

    Args:
        agents: with the same objective, one of `sheafed.vectorized.structure.OBJECTIVES`.
        outputs: of their heads.
        batch: of their samples.
    """
    targets = batch.targets
    if targets is None:  # its objective says what is missing
        return agents[0].objective(agents[0], batch.of(0))
    rows = outputs.apart()
    if agents[0].objective is mean_squared_error:
        rows = rows.reshape(len(agents), *matched_to(agents[0], targets[0], rows[0]).shape)
        values = functional.mse_loss(rows, targets.to(rows.dtype), reduction="none")
        return values.flatten(1).mean(1)
    return label_losses(agents, rows, targets)


def label_losses(agents: Sequence[Agent], scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of every agent, `(agents,)`.

    Args:
        agents: any.
        scores: of their samples, `(agents, n, classes)`.
        targets: labels `(agents, n)`, or class probabilities of the shape of the scores.
    """
    if not _are_labels(targets, scores):  # one of these says what is wrong, and with which agent
        return torch.stack(
            [label_loss(a, s, t) for a, s, t in zip(agents, scores, targets, strict=True)]
        )
    values = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(0, 1), reduction="none")
    return values.view(len(agents), -1).mean(1)


def soft_label_losses(scores: Tensor, targets: Tensor) -> Tensor:
    """Return `soft_cross_entropy` of every agent, `(agents,)`, given two `(agents, n, classes)`."""
    return -(targets * torch.log_softmax(scores, dim=-1)).sum(-1).mean(-1)


def _are_labels(targets: Tensor, scores: Tensor) -> bool:
    """Whether targets `(agents, n)` are classes that scores `(agents, n, classes)` have."""
    if targets.dtype not in INTEGERS or targets.shape != scores.shape[:-1]:
        return False
    low, high = (int(value) for value in targets.aminmax())
    return low >= 0 and high < scores.shape[-1]
