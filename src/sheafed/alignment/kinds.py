"""The kinds of map: how the latents of a sender become those of a receiver.

Each is a set of options with `fit`. What is left at `"auto"` is chosen by pilots that the map was
not fitted to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal, Self

import torch

from sheafed.alignment.affine_map import AffineMap
from sheafed.alignment.arrays import Array
from sheafed.alignment.selection import Choice, Goal, choose_for
from sheafed.alignment.shared_pilots import SharedPilots, SupportMap
from sheafed.errors import InputError
from sheafed.linalg.checks import check_fraction, check_int
from sheafed.linalg.whitening import Shrinkage

Auto = Literal["auto"]
KindName = Literal[
    "procrustes", "ridge", "rescaled-ridge", "affine", "low-rank", "canonical", "joint"
]
Maps = KindName | Auto

SHRINKAGES = (0.0, 0.1, 0.5, 0.9, 1.0)
POWERS = (0.5, 1.0)
# Of rescaled ridge: chosen on one draw of texts and one of images, apart from reported ones.
SEARCHING_POWER = 0.5
SHARES_OF_RANK = (0.125, 0.25, 0.5)
TINY = torch.finfo(torch.float64).tiny


class Kind(ABC):
    """A kind of map with its options."""

    name: ClassVar[KindName]

    def fit(self, x: Array, y: Array, goal: Goal = "read") -> AffineMap:
        """Fit a map from a sender's latents `(K, d_x)` of pilots to a receiver's `(K, d_y)`.

        >>> import numpy as np
        >>> x = np.random.default_rng(0).standard_normal((60, 4))
        >>> found = RidgeMap().fit(x, x[:, :2] + 1)
        >>> np.allclose(found.transform(x), x[:, :2] + 1, atol=1e-4)
        True
        """
        return choose_for([self], x, y, goal).map

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        """Return the options to compare on held-out pilots."""
        return [self]

    def settled(self, pilots: SharedPilots) -> Self:
        """Return the options with what the pilots themselves decide, such as a penalty."""
        return self

    def preferred_for(self, goal: Goal) -> bool:
        """Whether it is taken where another candidate is not clearly better."""
        return False

    @abstractmethod
    def solve(self, pilots: SharedPilots) -> SupportMap:
        """Fit the map; of the options, only a penalty may be `"auto"`."""

    def strength(self) -> dict[str, float]:
        return {key: float(value) for key, value in asdict(self).items()}  # type: ignore[call-overload]


@dataclass(frozen=True)
class ProcrustesMap(Kind):
    """Whiten, rotate, colour: an isometry between white latents.

    Args:
        shrinkage: of the covariances, from 0 (white) to 1 (only the overall scale is removed).
    """

    shrinkage: Shrinkage = "auto"
    name: ClassVar[KindName] = "procrustes"

    def __post_init__(self) -> None:
        check_shrinkage(self.shrinkage)

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        if self.shrinkage != "auto":
            return [self]
        return [replace(self, shrinkage=amount) for amount in SHRINKAGES]

    def solve(self, pilots: SharedPilots) -> SupportMap:
        amount = decided("shrinkage", self.shrinkage)
        return pilots.canonical_map(amount, power=0.0, on_references=True)


@dataclass(frozen=True)
class CanonicalMap(Kind):
    r"""Canonical directions, each weighted by a power of its correlation $\rho$.

    Power 0 would be the isometry; power 1 is $\frac{1}{1-s}$ times ridge regression.

    Args:
        shrinkage: of the covariances, from 0 to 1.
        power: of the correlations, from 0 to 1.
    """

    shrinkage: Shrinkage = "auto"
    power: float | Auto = "auto"
    name: ClassVar[KindName] = "canonical"

    def __post_init__(self) -> None:
        check_shrinkage(self.shrinkage)
        _check_power(self.power)

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        amounts = SHRINKAGES if self.shrinkage == "auto" else (self.shrinkage,)
        powers = POWERS if self.power == "auto" else (self.power,)
        return [replace(self, shrinkage=s, power=p) for s in amounts for p in powers]

    def solve(self, pilots: SharedPilots) -> SupportMap:
        amount = decided("shrinkage", self.shrinkage)
        power = decided("power", self.power)
        return pilots.canonical_map(amount, power, on_references=False)


@dataclass(frozen=True)
class RidgeMap(Kind):
    r"""Ridge regression of the receiver's latents on the sender's.

    Args:
        penalty: $\alpha$ in $\|Y - XB\|^2 + \alpha\|B\|^2$; `"auto"` minimises the exact
            leave-one-out error in the receiver's standard units.
    """

    penalty: float | Auto = "auto"
    name: ClassVar[KindName] = "ridge"

    def __post_init__(self) -> None:
        _check_penalty(self.penalty)

    def settled(self, pilots: SharedPilots) -> Self:
        return replace(self, penalty=_penalty(self.penalty, pilots))

    def solve(self, pilots: SharedPilots) -> SupportMap:
        weights = pilots.ridge(_penalty(self.penalty, pilots))
        return SupportMap(pilots.sender.support, (weights,), pilots.receiver.support)


@dataclass(frozen=True)
class RescaledRidgeMap(Kind):
    r"""Ridge regression, then every principal direction of the receiver gets variance back.

    With the deviations $\sigma_k$ of the receiver's pilots along their principal directions, and
    $\hat\sigma_k$ of what ridge regression predicts for the same pilots, direction k is multiplied
    by $(\sigma_k / \hat\sigma_k)^p$. Power 1 gives all variance back, power 0 is ridge regression.

    Ridge alone draws latents towards their mean, most where they are hard to predict. A head or a
    cosine compares directions with each other, and reads better what has the spread it knows. In
    an index of mapped latents full variance is too much: directions that are hard to predict
    carry mostly noise there (measured in docs/results/maps.md).

    Args:
        penalty: as for `RidgeMap`.
        power: $p$, from 0 to 1; `"auto"` compares 1/2, preferred to search, and 1, preferred
            else.
    """

    penalty: float | Auto = "auto"
    power: float | Auto = "auto"
    name: ClassVar[KindName] = "rescaled-ridge"

    def __post_init__(self) -> None:
        _check_penalty(self.penalty)
        _check_power(self.power)

    def preferred_for(self, goal: Goal) -> bool:
        return self.power == (SEARCHING_POWER if goal == "search" else 1.0)

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        powers = (SEARCHING_POWER, 1.0) if self.power == "auto" else (self.power,)
        return [replace(self, power=power) for power in powers]

    def settled(self, pilots: SharedPilots) -> Self:
        return replace(self, penalty=_penalty(self.penalty, pilots))

    def solve(self, pilots: SharedPilots) -> SupportMap:
        weights = pilots.ridge(_penalty(self.penalty, pilots))
        predicted = (pilots.sender.squares @ weights.square()).sqrt()
        own = pilots.receiver.squares.sqrt()
        gains = torch.where(predicted > 0, own / predicted.clamp_min(TINY), 0.0)
        gains = gains ** decided("power", self.power)
        return SupportMap(pilots.sender.support, (weights * gains,), pilots.receiver.support)


@dataclass(frozen=True)
class LeastSquaresMap(Kind):
    """Least squares on the support of the sender's latents: of all minimisers the smallest."""

    name: ClassVar[KindName] = "affine"

    def solve(self, pilots: SharedPilots) -> SupportMap:
        return SupportMap(pilots.sender.support, (pilots.ridge(0.0),), pilots.receiver.support)


@dataclass(frozen=True)
class LowRankMap(Kind):
    """Reduced-rank ridge regression: only some directions are carried.

    Args:
        rank: of the weights; `"auto"` tries an eighth, a quarter and a half of the support.
        penalty: as for `RidgeMap`.
    """

    rank: int | Auto = "auto"
    penalty: float | Auto = "auto"
    name: ClassVar[KindName] = "low-rank"

    def __post_init__(self) -> None:
        if self.rank != "auto":
            check_int("rank", self.rank, 1)
        _check_penalty(self.penalty)

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        if self.rank != "auto":
            return [self]
        largest = min(space.rank for space in pilots.supports)
        ranks = sorted({max(1, round(share * largest)) for share in SHARES_OF_RANK})
        return [replace(self, rank=rank) for rank in ranks]

    def settled(self, pilots: SharedPilots) -> Self:
        return replace(self, penalty=_penalty(self.penalty, pilots))

    def solve(self, pilots: SharedPilots) -> SupportMap:
        rank = int(decided("rank", self.rank))
        penalty = _penalty(self.penalty, pilots)
        leading = pilots.ranked_directions(penalty)[:rank]
        factors = (pilots.ridge(penalty) @ leading.mT, leading)
        return SupportMap(pilots.sender.support, factors, pilots.receiver.support)


KINDS: dict[KindName, type[Kind]] = {
    kind.name: kind
    for kind in (
        *(ProcrustesMap, RidgeMap, RescaledRidgeMap),
        *(LeastSquaresMap, LowRankMap, CanonicalMap),
    )
}


def kinds_of(maps: Maps, shrinkage: Shrinkage = "auto") -> list[Kind]:
    """Return the kinds of pairwise map to choose among; the shrinkage is that of isometries."""
    if maps != "auto" and maps not in KINDS:
        raise InputError(f"maps must be 'auto' or one of {list(KINDS)}, got {maps!r}")
    named = KINDS if maps == "auto" else (maps,)
    return [ProcrustesMap(shrinkage) if n == "procrustes" else KINDS[n]() for n in named]


def fit_map(x: Array, y: Array, maps: Maps = "auto", goal: Goal = "read") -> Choice[Kind]:
    """Choose and fit one map from a sender's latents of pilots to a receiver's, without a network.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((60, 4))
    >>> choice = fit_map(x, 3 * x[:, ::-1] + 1)
    >>> choice.kind.name
    'procrustes'
    >>> np.allclose(choice.map.transform(x), 3 * x[:, ::-1] + 1)
    True

    Args:
        x: the sender's latents `(K, d_x)` of the pilots.
        y: the receiver's latents `(K, d_y)` of the same pilots in the same order.
        maps: see `sheafed.align`.
        goal: see `sheafed.align`.
    """
    return choose_for(kinds_of(maps), x, y, goal)


def check_shrinkage(shrinkage: Shrinkage) -> None:
    if isinstance(shrinkage, str):
        if shrinkage != "auto":
            raise InputError(f"shrinkage must be 'auto' or a number in [0, 1], got {shrinkage!r}")
    else:
        check_fraction("shrinkage", shrinkage)


def _check_power(power: float | Auto) -> None:
    if power != "auto":
        check_fraction("power", power)


def _check_penalty(penalty: float | Auto) -> None:
    if penalty != "auto" and (isinstance(penalty, str) or not penalty >= 0):
        raise InputError(f"penalty must be 'auto' or a number from 0, got {penalty!r}")


def _penalty(penalty: float | Auto, pilots: SharedPilots) -> float:
    return pilots.best_penalty if penalty == "auto" else penalty


def decided(name: str, value: float | Auto) -> float:
    if isinstance(value, str):
        raise InputError(f"{name} is {value!r}; take one of candidates() first")
    return value
