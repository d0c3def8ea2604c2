"""Cross-validation on pilots: how a map does on pilots that it was not fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed import seeds
from sheafed.alignment.shared_pilots import standard_units
from sheafed.errors import EmptyInputError

FOLDS = 5
FEWEST_PILOTS = 4


@dataclass(frozen=True)
class HeldOut:
    """What folds of held-out pilots say about a map, fold by fold."""

    residuals: tuple[float, ...]
    """The mean square error in the receiver's standard units: 0 exact, 1 no better than its mean.
    """
    top1: tuple[float, ...]
    """How often the nearest of the fold's own latents, by the cosine, is that of the same pilot."""
    reciprocal_ranks: tuple[float, ...]
    """The mean of 1 / rank of the right pilot in that order."""


def folds(pilots: int, groups: Tensor | None = None) -> list[Tensor]:
    """Return the numbers of the held-out pilots of each fold: 5, or pairs if there are few.

    Args:
        pilots: how many there are.
        groups: the number of each pilot's group `(pilots,)`; every group is dealt to all folds.
    """
    if pilots < FEWEST_PILOTS:
        raise EmptyInputError(
            f"alignment needs at least {FEWEST_PILOTS} pilots, some of them to judge maps by, got "
            f"{pilots}; encode more"
        )
    order = torch.randperm(pilots, generator=seeds.generator(0, "alignment", "folds"))
    number = min(FOLDS, pilots // 2)
    if groups is None or not len(groups) or bool((groups == groups[0]).all()):
        return list(order.tensor_split(number))
    dealt = order[torch.argsort(groups[order], stable=True)]
    return [dealt[first::number] for first in range(number)]


def residual(read: Tensor, own: Tensor, spread: Tensor) -> float:
    """Return the mean square error of `read` `(n, d)`, each coordinate in units of its deviation.

    >>> own = torch.tensor([[1.0, 7.0], [5.0, 7.0]])
    >>> residual(torch.tensor([[1.0, 7.0], [3.0, 7.0]]), own, spread=torch.tensor([2.0, 0.0]))
    0.5

    Args:
        read: a sender's latents as the map carries them.
        own: the receiver's latents `(n, d)` of the same pilots.
        spread: `(d,)`, the receiver's deviations; coordinates without any are left out.
    """
    errors = torch.linalg.vector_norm((read - own) * standard_units(spread))
    return float(errors) ** 2 / (len(own) * max(1, int((spread > 0).sum())))


def retrieval(read: Tensor, own: Tensor, centre: Tensor) -> tuple[float, float]:
    """Return how often the right pilot is the nearest, and the mean of 1 / its rank.

    >>> retrieval(torch.eye(2), torch.eye(2), centre=torch.zeros(2))
    (1.0, 1.0)

    Args:
        read: `(n, d)`, queries.
        own: `(n, d)`, what is searched; row i is the answer to query i.
        centre: `(d,)`, subtracted before cosines are taken. Equal cosines share their ranks.
    """
    a, b = (torch.nn.functional.normalize(z - centre, dim=-1, eps=1e-300) for z in (read, own))
    cosines = a @ b.mT
    right = cosines.diagonal()[:, None]
    ranks = (cosines > right).sum(1) + ((cosines == right).sum(1) + 1) / 2
    return float((ranks <= 1).double().mean()), float((1 / ranks).mean())


def mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: tuple[float, ...]) -> float:
    """Return the standard deviation of a sample."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))
