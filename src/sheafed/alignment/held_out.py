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
# Up to so many dimensions the cosine, which ignores lengths, says little: in one it is a sign.
FEW_DIMENSIONS = 3


@dataclass(frozen=True)
class HeldOut:
    """What folds of held-out pilots say about a map, fold by fold.

    A pilot is searched by the cosine of centred latents among the receiver's own of its fold.
    """

    residuals: tuple[float, ...]
    """The mean square error in the receiver's standard units: 0 exact, 1 no better than its mean.
    """
    top1: tuple[float, ...]
    """How often the nearest latent is that of the same pilot."""
    reciprocal_ranks: tuple[float, ...]
    """The mean of 1 / rank of the right pilot."""
    standard_reciprocal_ranks: tuple[float, ...]
    """The same in the receiver's standard units, as a head sees latents that it standardises."""
    first_of_ten: tuple[float, ...]
    """How often the right pilot is the nearest of ten: it and nine random ones. For receivers of up
    to three dimensions by distance, in standard units."""
    neighbour_reciprocal_ranks: tuple[float, ...]
    """The mean of 1 / rank of a query's nearest neighbour in an index of mapped latents
    (`neighbour_ranks`)."""


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


def ranks(read: Tensor, own: Tensor) -> Tensor:
    """Return the rank `(n,)` of the right row for each query, from 1, by the cosine.

    >>> ranks(torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.5]]))
    tensor([2., 2.])

    Args:
        read: `(n, d)`, queries, centred.
        own: `(n, d)`, what is searched, centred; row i is the answer to query i. Equal cosines
            share their ranks.
    """
    a, b = (torch.nn.functional.normalize(z, dim=-1, eps=1e-300) for z in (read, own))
    cosines = a @ b.mT
    right = cosines.diagonal()[:, None]
    return (cosines > right).sum(1) + ((cosines == right).sum(1) + 1) / 2


def distance_ranks(read: Tensor, own: Tensor) -> Tensor:
    """Return the rank `(n,)` of the right row for each query, from 1, by the distance.

    >>> distance_ranks(torch.tensor([[1.0], [4.0]]), torch.tensor([[2.0], [0.5]]))
    tensor([2., 2.])

    Args:
        read: `(n, d)`, queries.
        own: `(n, d)`, what is searched; row i is the answer to query i. Equal distances share their
            ranks.
    """
    # Coordinate by coordinate: the differences of all pairs at once would be d times as large.
    pairs = zip(read.mT, own.mT, strict=True)
    distances = sum(((x[:, None] - y).square() for x, y in pairs), start=torch.zeros(()))
    right = distances.diagonal()[:, None]
    return (distances < right).sum(1) + ((distances == right).sum(1) + 1) / 2


def nearest_others(own: Tensor) -> Tensor:
    r"""Return for each row the nearest other one, $j^*(i) = \arg\max_{j \ne i} \cos(y_i, y_j)$.

    >>> nearest_others(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
    tensor([1, 0, 1])

    Args:
        own: $y$, `(n, d)`, two rows or more, compared as they are.
    """
    y = torch.nn.functional.normalize(own, dim=-1, eps=1e-300)
    return (y @ y.mT).fill_diagonal_(-torch.inf).argmax(1)


def neighbour_ranks(read: Tensor, own: Tensor, nearest: Tensor) -> Tensor:
    r"""Return how early a mapped index has the nearest neighbour of native queries, ranks `(n,)`.

    Query i is answered by $j^*(i)$, its nearest other row. The rank, from 1, is that of
    $\cos(y_i, m_{j^*(i)})$ among all $\cos(y_i, m_j)$ with $j \ne i$: what is searched for is not
    in the index itself. Latents are compared as they are, not centred, as an index does.

    >>> own = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> neighbour_ranks(own[[0, 2, 1]], own, nearest_others(own))
    tensor([2., 2., 1.])

    Args:
        read: $m$, `(n, d)`, the index: a sender's latents as the map carries them.
        own: $y$, `(n, d)`, the queries: the receiver's latents of the same rows. Equal cosines
            share their ranks.
        nearest: $j^*$, `(n,)`.
    """
    m, y = (torch.nn.functional.normalize(z, dim=-1, eps=1e-300) for z in (read, own))
    found = (y @ m.mT).fill_diagonal_(-torch.inf)
    right = found.gather(1, nearest[:, None])
    return (found > right).sum(1) + ((found == right).sum(1) + 1) / 2


def first_of(number: int, found: Tensor) -> float:
    r"""Return how often the right row is the nearest of `number` rows, the others random ones.

    The mean over all choices of the others: with rank r among n rows, $n - r$ are farther, and
    $\binom{n-r}{m-1} / \binom{n-1}{m-1}$ of the choices have only such. It does not depend on how
    many rows are searched, as the share of first ranks does.

    >>> first_of(2, torch.tensor([1.0, 2.0, 3.0]))
    0.5

    Args:
        number: m, at least 2; if there are fewer rows, all of them.
        found: ranks `(n,)` among n rows.
    """
    n = len(found)
    others = torch.arange(min(number, n) - 1, dtype=torch.float64)
    farther = (n - found)[:, None].double()
    return float(((farther - others) / (n - 1 - others)).clamp_min(0).prod(1).mean())


def mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: tuple[float, ...]) -> float:
    """Return the standard deviation of a sample."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))
