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
from sheafed.agents.samples import INTEGERS, Batch
from sheafed.vectorized.stacked import Stacked


def losses(agents: Sequence[Agent], outputs: Stacked, batches: Sequence[Batch]) -> Tensor:
    """Return the objective of every agent, `(agents,)`.

    Args:
        agents: with the same objective, one of `sheafed.vectorized.structure.OBJECTIVES`.
        outputs: of their heads.
        batches: of their samples.
    """
    targets = torch.stack([b.targets for b in batches if b.targets is not None])
    rows = outputs.apart()
    if agents[0].objective is mean_squared_error:
        rows = rows.reshape(len(agents), *matched_to(agents[0], targets[0], rows[0]).shape)
        values = functional.mse_loss(rows, targets.to(rows.dtype), reduction="none")
        return values.flatten(1).mean(1)
    if not _are_labels(targets, rows):  # one of these says what is wrong, and with which agent
        return torch.stack(
            [label_loss(a, s, t) for a, s, t in zip(agents, rows, targets, strict=True)]
        )
    values = functional.cross_entropy(rows.flatten(0, 1), targets.flatten(0, 1), reduction="none")
    return values.view(len(agents), -1).mean(1)


def _are_labels(targets: Tensor, scores: Tensor) -> bool:
    """Whether targets `(agents, n)` are classes that scores `(agents, n, classes)` have."""
    if targets.dtype not in INTEGERS or targets.shape != scores.shape[:-1]:
        return False
    low, high = (int(value) for value in targets.aminmax())
    return low >= 0 and high < scores.shape[-1]
