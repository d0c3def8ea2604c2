"""Pilots that a sender and a receiver have in common, as coordinates on their supports."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sheafed.alignment.affine_map import AffineMap
from sheafed.linalg.canonical import CanonicalDirections, canonical_directions
from sheafed.linalg.ridge import best_penalty, ranked_directions, ridge
from sheafed.linalg.support import Support, support

if TYPE_CHECKING:
    from sheafed.alignment.joint import JointPilots

# Multiples of the mean square of the sender's singular values.
PENALTIES = tuple(float(10**power) for power in np.arange(-6, 3.5, 0.5))


@dataclass(frozen=True, eq=False)
class PilotLatents:
    """One agent's latents of some pilots. What all its maps need is computed once."""

    latents: Tensor
    """`(n, d)`"""
    support: Support
    """Of these latents."""

    @cached_property
    def coordinates(self) -> Tensor:
        """Centred and with orthogonal columns, `(n, r)`."""
        return self.support.coordinates(self.latents)

    @cached_property
    def squares(self) -> Tensor:
        """`(r,)`, of the lengths of the columns."""
        return self.coordinates.square().sum(0)

    @cached_property
    def standard_coordinates(self) -> Tensor:
        """`(n, r)`, with rows as long as those of the latents in standard units."""
        space = self.support
        factor: Tensor = torch.linalg.qr(standardised(space.basis, space.spread), mode="r").R
        return self.coordinates @ factor.mT


def encoded(latents: Tensor) -> PilotLatents:
    return PilotLatents(latents, support(latents))


@dataclass(frozen=True, eq=False)
class SharedPilots:
    """What every kind of map is fitted to.

    Args:
        sender: its latents of the pilots.
        receiver: those of the same pilots.
        references: the supports on which an isometry whitens, where they are not those of the
            pilots.
        mate: the same pilots in the other direction, to share decompositions with.
        joint: the pilots of all agents, the sender's and the receiver's name, for joint maps.
    """

    sender: PilotLatents
    receiver: PilotLatents
    references: tuple[Support, Support] | None = None
    mate: SharedPilots | None = None
    joint: tuple[JointPilots, str, str] | None = None
    _directions: dict[tuple[float, bool], CanonicalDirections] = field(default_factory=dict)
    _ranked: dict[float, Tensor] = field(default_factory=dict)
    _whiteners: dict[tuple[float, bool], Tensor] = field(default_factory=dict)

    def reversed(self) -> SharedPilots:
        """Return the same pilots from the receiver to the sender."""
        references = None if self.references is None else self.references[::-1]
        joint = None if self.joint is None else (self.joint[0], self.joint[2], self.joint[1])
        return SharedPilots(self.receiver, self.sender, references, mate=self, joint=joint)

    @property
    def supports(self) -> tuple[Support, Support]:
        return self.sender.support, self.receiver.support

    def whitening_supports(self, *, on_references: bool) -> tuple[Support, Support]:
        return self.references if on_references and self.references else self.supports

    @cached_property
    def cross(self) -> Tensor:
        """`(r_x, r_y)`, of the coordinates of the pilots."""
        if self.mate is not None:
            return self.mate.cross.mT
        return self.sender.coordinates.mT @ self.receiver.coordinates

    def directions(self, shrinkage: float, *, on_references: bool) -> CanonicalDirections:
        """Return the canonical directions of the pilots, whitened on one pair of supports."""
        key = (shrinkage, on_references and self.references is not None)
        if key not in self._directions:
            self._directions[key] = (
                self._decompose(shrinkage, on_references=on_references)
                if self.mate is None
                else self.mate.directions(shrinkage, on_references=on_references).reversed()
            )
        return self._directions[key]

    def _decompose(self, shrinkage: float, *, on_references: bool) -> CanonicalDirections:
        x, y = self.whitening_supports(on_references=on_references)
        if on_references and self.references is not None:
            a, b = x.coordinates(self.sender.latents), y.coordinates(self.receiver.latents)
            products = a.mT @ b
        else:
            products = self.cross
        white = products / x.shrunk_deviations(shrinkage)[:, None] / y.shrunk_deviations(shrinkage)
        return canonical_directions(white / len(self.sender.latents))

    def canonical_map(self, shrinkage: float, power: float, *, on_references: bool) -> SupportMap:
        """Whiten, carry each canonical direction to its mate, weighted by a power, colour."""
        directions = self.directions(shrinkage, on_references=on_references)
        left, right = directions.weighted(power)
        sender, receiver = self.whitening_supports(on_references=on_references)
        # One tensor for all powers: what it makes of latents is computed once.
        key = (shrinkage, sender is self.sender.support)
        if key not in self._whiteners:
            self._whiteners[key] = left / sender.shrunk_deviations(shrinkage)[:, None]
        colour = right * receiver.shrunk_deviations(shrinkage)
        return SupportMap(sender, (self._whiteners[key], colour), receiver)

    def ridge(self, penalty: float) -> Tensor:
        """Return the weights `(r_x, r_y)` of ridge regression; 0 is least squares."""
        return ridge(self.sender.squares, self.cross, penalty)

    def ranked_directions(self, penalty: float) -> Tensor:
        """Return the receiver's directions that ridge weights of any rank keep, best first."""
        if penalty not in self._ranked:
            self._ranked[penalty] = ranked_directions(self.sender.squares, self.cross, penalty)
        return self._ranked[penalty]

    @cached_property
    def best_penalty(self) -> float:
        """The ridge penalty of least leave-one-out error in the receiver's standard units."""
        x = self.sender.coordinates
        if not x.numel() or not self.receiver.coordinates.numel():
            return 0.0
        unit = float(self.sender.squares.mean())
        penalties = [unit * multiple for multiple in PENALTIES]
        return best_penalty(x, self.receiver.standard_coordinates, penalties)[0]


@dataclass(frozen=True)
class SupportMap:
    """A map from the support of one agent's latents to that of another's."""

    sender: Support
    factors: tuple[Tensor, ...]
    """Matrices whose product is `(r_x, r_y)`, to be applied one after the other."""
    receiver: Support

    def colour(self, coordinates: Tensor) -> Tensor:
        """Return coordinates `(n, r_y)` on the receiver's support as its latents."""
        return torch.addmm(self.receiver.mean, coordinates, self.receiver.basis.mT)

    def affine(self) -> AffineMap:
        weight = self.receiver.basis
        for factor in reversed(self.factors):
            weight = weight @ factor.mT
        return AffineMap(weight @ self.sender.basis.mT, self.sender.mean, self.receiver.mean)


def standardised(rows: Tensor, spread: Tensor) -> Tensor:
    """Return rows `(d, r)` divided by the deviations `(d,)`, and zero where those are zero."""
    return rows * standard_units(spread)[:, None]


def standard_units(spread: Tensor) -> Tensor:
    return torch.where(spread > 0, 1 / spread.clamp_min(torch.finfo(spread.dtype).tiny), 0.0)
