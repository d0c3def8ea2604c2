"""Pilots that a sender and a receiver have in common, as coordinates on their supports."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sheafed.alignment.affine_map import AffineMap
from sheafed.linalg.canonical import CanonicalDirections, canonical_directions
from sheafed.linalg.ridge import leave_one_out_errors
from sheafed.linalg.support import Support

# Multiples of the mean square of the sender's singular values.
PENALTIES = tuple(float(10**power) for power in np.arange(-6, 3.5, 0.5))


@dataclass(frozen=True, eq=False)
class SharedPilots:
    """What every kind of map is fitted to.

    Args:
        x: the sender's latents `(n, d_x)` of the pilots.
        y: the receiver's, `(n, d_y)`.
        supports: of the sender's and the receiver's latents of these pilots.
        references: the supports on which an isometry whitens; those of private data may differ.
    """

    x: Tensor
    y: Tensor
    supports: tuple[Support, Support]
    references: tuple[Support, Support]
    _directions: dict[tuple[float, bool], CanonicalDirections] = field(default_factory=dict)

    @cached_property
    def coordinates(self) -> tuple[Tensor, Tensor]:
        """Of the pilots, centred and with orthogonal columns, `(n, r_x)` and `(n, r_y)`."""
        return self.supports[0].coordinates(self.x), self.supports[1].coordinates(self.y)

    def directions(self, shrinkage: float, *, on_references: bool) -> CanonicalDirections:
        """Return the canonical directions of the pilots, whitened on one pair of supports."""
        same = self.references is self.supports
        key = (shrinkage, on_references and not same)
        if key not in self._directions:
            spaces = self.references if on_references else self.supports
            x, y = (
                space.coordinates(z) / space.shrunk_deviations(shrinkage)
                for space, z in zip(spaces, (self.x, self.y), strict=True)
            )
            self._directions[key] = canonical_directions(x, y)
        return self._directions[key]

    @cached_property
    def best_penalty(self) -> float:
        """The ridge penalty of least leave-one-out error in the receiver's standard units."""
        x, y = self.coordinates
        if not x.numel():
            return 0.0
        unit = float(x.square().sum(0).mean())
        receiver = self.supports[1]
        # Row norms are kept: a triangular factor has the size of the support, not of the latents.
        _, standard = torch.linalg.qr(standardised(receiver.basis, receiver.spread))
        penalties = [unit * multiple for multiple in PENALTIES]
        errors = leave_one_out_errors(x, y @ standard.mT, penalties)
        return penalties[errors.index(min(errors))]


@dataclass(frozen=True)
class SupportMap:
    """A map from the support of one agent's latents to that of another's."""

    sender: Support
    core: Tensor
    """`(r_x, r_y)`"""
    receiver: Support

    def __call__(self, z: Tensor) -> Tensor:
        carried = self.sender.coordinates(z) @ self.core
        return carried @ self.receiver.basis.mT + self.receiver.mean

    def affine(self) -> AffineMap:
        weight = self.receiver.basis @ self.core.mT @ self.sender.basis.mT
        return AffineMap(weight, self.sender.mean, self.receiver.mean)


def standardised(rows: Tensor, spread: Tensor) -> Tensor:
    """Return rows `(d, r)` divided by the deviations `(d,)`, and zero where those are zero."""
    units = torch.where(spread > 0, 1 / spread.clamp_min(torch.finfo(spread.dtype).tiny), 0.0)
    return rows * units[:, None]
