"""The choice among candidate maps by held-out pilots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Generic, Literal, Protocol, Self, TypeVar, get_args

import torch
from torch import Tensor

from sheafed.alignment.affine_map import AffineMap
from sheafed.alignment.arrays import Array, as_pilots
from sheafed.alignment.held_out import (
    FEW_DIMENSIONS,
    HeldOut,
    deviation,
    distance_ranks,
    first_of,
    folds,
    mean,
    nearest_others,
    neighbour_ranks,
    ranks,
    residual,
)
from sheafed.alignment.repeated_pilots import distinct, warn_repeated
from sheafed.alignment.shared_pilots import (
    PilotLatents,
    SharedPilots,
    SupportMap,
    encoded,
    standard_units,
)
from sheafed.errors import InputError, ShapeError, SingularCovarianceError
from sheafed.linalg.support import Support, support

Goal = Literal["read", "match", "search"]

# Losses that differ by less are rounding of the latents.
TIE = 1e-6
TEN = 10
# Standard errors by which another kind must be better than the preferred one.
CLEARLY = 2


class Candidate(Protocol):
    """A kind of map with its options (`sheafed.alignment.kinds`)."""

    def preferred_for(self, goal: Goal) -> bool:
        """Whether it is taken where another is not clearly better."""
        ...

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        """Return the options to compare on held-out pilots."""
        ...

    def settled(self, pilots: SharedPilots) -> Self:
        """Return the options with what the pilots themselves decide, such as a penalty."""
        ...

    def solve(self, pilots: SharedPilots) -> SupportMap:
        """Fit the map."""
        ...


KindT = TypeVar("KindT", bound=Candidate)


@dataclass(frozen=True, eq=False)
class Fold:
    """Pilots to fit to, and pilots to judge by."""

    fitted: SharedPilots
    x: Tensor
    y: Tensor
    _carried: dict[tuple[int, ...], tuple[object, Tensor]] = field(default_factory=dict)

    @cached_property
    def nearest(self) -> Tensor:
        """The number of the nearest other pilot of each, by the receiver's latents, `(n,)`."""
        return nearest_others(self.y.double())

    def read(self, found: SupportMap) -> Tensor:
        """Return the sender's latents of the held-out pilots as a map carries them."""
        return found.colour(self._coordinates(found.sender, found.factors))

    def _coordinates(self, space: Support, factors: tuple[Tensor, ...]) -> Tensor:
        """Return the product of coordinates and factors; maps share their first ones."""
        key = (id(space), *map(id, factors))
        if key not in self._carried:
            if not factors:
                carried = space.coordinates(self.x)
            else:
                carried = self._coordinates(space, factors[:-1]) @ factors[-1]
                if len(factors) > 1:
                    return carried
            # An object that is kept cannot lend its id to another one.
            self._carried[key] = ((space, factors), carried)
        return self._carried[key][1]


@dataclass(frozen=True)
class Choice(Generic[KindT]):
    """A map, the options that it was fitted with, and what held-out pilots say about it."""

    kind: KindT
    map: AffineMap
    held_out: HeldOut


def choose_for(kinds: Sequence[KindT], x: Array, y: Array, goal: Goal) -> Choice[KindT]:
    """Choose and fit one map from a sender's latents of pilots to a receiver's."""
    return choose_each(kinds, x, y, [goal])[goal]


def choose_each(
    kinds: Sequence[KindT], x: Array, y: Array, goals: Iterable[Goal]
) -> dict[Goal, Choice[KindT]]:
    """Choose and fit a map for each goal: the candidate of least loss on held-out pilots.

    Candidates are judged once, whatever the number of goals.
    """
    goals = [check_goal(goal) for goal in goals]
    given = as_pilots("the sender's latents", x), as_pilots("the receiver's latents", y)
    if len(given[0]) != len(given[1]):
        raise ShapeError(
            "sender and receiver must encode the same pilots in the same order, got "
            f"{len(given[0])} and {len(given[1])} rows"
        )
    everywhere = torch.ones(len(given[0]), dtype=torch.bool)
    kept, _ = distinct(given, [everywhere, everywhere])
    warn_repeated(kept, stacklevel=5)
    x, y = (z if bool(kept.all()) else z[kept] for z in given)
    whole = SharedPilots(
        PilotLatents(x, varying_support("sender", x)),
        PilotLatents(y, varying_support("receiver", y)),
    )
    options = [option for kind in kinds for option in kind.candidates(whole)]
    judged = judge(options, whole, _folds(x, y))
    best = {goal: best_option(options, judged, goal) for goal in goals}
    return {goal: settle(options[b], whole, judged[b]) for goal, b in best.items()}


def _folds(x: Tensor, y: Tensor) -> Iterator[Fold]:
    """Yield one fold at a time, so that the decompositions of only one are kept."""
    for held in folds(len(x)):
        fitted = SharedPilots(encoded(without(x, held)), encoded(without(y, held)))
        yield Fold(fitted, x[held], y[held])


def without(z: Tensor, held: Tensor) -> Tensor:
    kept = torch.ones(len(z), dtype=torch.bool)
    kept[held] = False
    return z[kept]


def varying_support(name: str, x: Tensor) -> Support:
    """Return the support of an agent's latents, or raise if they are all alike."""
    return check_varies(name, support(x))


def check_varies(name: str, found: Support) -> Support:
    if not found.rank:
        raise SingularCovarianceError(
            f"latents of {name!r}: none of its {len(found.mean)} directions has variance: all are "
            "alike as far as the digits of their dtype show; check the encoder and its inputs; if "
            "an offset takes up the digits, subtract it before the latents are rounded"
        )
    return found


def check_goal(goal: Goal) -> Goal:
    if goal not in get_args(Goal):
        raise InputError(f"goal must be one of {list(get_args(Goal))}, got {goal!r}")
    return goal


def judge(
    options: Sequence[Candidate], whole: SharedPilots, parts: Iterable[Fold]
) -> list[HeldOut]:
    """Return what held-out pilots say about each candidate; nothing, without folds."""
    spread = whole.receiver.support.spread
    judged = [[_figures(option, part, spread) for option in options] for part in parts]
    if not judged:
        return [HeldOut(*[()] * len(fields(HeldOut))) for _ in options]
    return [HeldOut(*zip(*figures, strict=True)) for figures in zip(*judged, strict=True)]


def best_option(options: Sequence[Candidate], judged: Sequence[HeldOut], goal: Goal) -> int:
    """Return the number of the candidate with the least loss.

    The loss is one minus a mean reciprocal rank. To match, that of the right pilot; to read, the
    mean of that by the cosine and by the cosine in standard units; to search, that of a query's
    nearest neighbour in an index of mapped latents. The square error would be no guide: its
    minimum draws latents towards their mean, where heads confuse classes.

    A preferred candidate is taken unless another is better by more than two standard errors of the
    difference over the folds, since the least of many losses is partly luck; where both find all
    pilots, the residual decides.
    """
    losses = [losses_of(held_out, goal) for held_out in judged]

    def loss(number: int) -> tuple[float, float]:
        # Where every candidate finds all pilots, the residual decides.
        return mean(losses[number]), mean(judged[number].residuals)

    best = min(range(len(options)), key=loss)
    preferred = [number for number, option in enumerate(options) if option.preferred_for(goal)]
    if preferred:
        first = min(preferred, key=loss)
        behind = tuple(a - b for a, b in zip(losses[first], losses[best], strict=True))
        if TIE < mean(behind) <= CLEARLY * deviation(behind) / math.sqrt(len(behind)):
            best = first
    return best


def settle(option: KindT, whole: SharedPilots, held_out: HeldOut) -> Choice[KindT]:
    """Fit a candidate to all pilots."""
    settled = option.settled(whole)
    return Choice(settled, settled.solve(whole).affine(), held_out)


def _figures(
    option: Candidate, part: Fold, spread: Tensor
) -> tuple[float, float, float, float, float, float]:
    """Return what one fold says about a candidate, as `HeldOut` has it."""
    units = standard_units(spread)
    y, centre = part.y.double(), part.fitted.receiver.support.mean
    read = part.read(option.solve(part.fitted))
    found = ranks(read - centre, y - centre)
    standard = ranks((read - centre) * units, (y - centre) * units)
    few = y.shape[-1] <= FEW_DIMENSIONS
    return (
        residual(read, y, spread),
        float((found <= 1).double().mean()),
        float((1 / found).mean()),
        float((1 / standard).mean()),
        first_of(TEN, distance_ranks(read * units, y * units) if few else found),
        float((1 / neighbour_ranks(read, y, part.nearest)).mean()),
    )


def losses_of(held_out: HeldOut, goal: Goal) -> tuple[float, ...]:
    if goal == "search":
        return tuple(1 - rank for rank in held_out.neighbour_reciprocal_ranks)
    found = zip(held_out.reciprocal_ranks, held_out.standard_reciprocal_ranks, strict=True)
    if goal == "match":
        return tuple(1 - rank for rank, _ in found)
    return tuple(1 - (rank + standard) / 2 for rank, standard in found)
