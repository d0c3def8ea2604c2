r"""A fingerprint of an encoder: which latents cannot come from it.

Other data of the same encoder have another mean and other variances, but their means still
correlate over coordinates, and so do their variances along the principal directions of the pilots.
Coordinates that were rotated or permuted have neither. And no data change the size of latents
severalfold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sheafed.alignment.arrays import Array, as_tensor
from sheafed.errors import EncoderMismatchError
from sheafed.linalg.support import Support, support

# Calibrated on six text encoders; docs/tutorial/align-encoders.md has the figures.
FEWEST_ROWS = 32
FEWEST_PILOTS = 300
LEAST_SIMILARITY = 0.25
LARGEST_RATIO = 4.0

# Halves of the pilots must be this similar, else latents of the encoder need not be.
LEAST_STRUCTURE = 0.7
MOST_ROWS = 1024


@dataclass(frozen=True)
class Fingerprint:
    """Statistics of an encoder's latents of the pilots."""

    mean: Tensor
    """`(d,)`"""
    basis: Tensor
    """`(d, r)`, the principal directions."""
    variances: Tensor
    """`(r,)`, along them."""
    energy: float
    """The mean square length of a latent."""
    structured: bool
    """Whether the pilots are enough, and similar enough to each other, to judge directions by."""

    def check(self, name: str, z: Array) -> None:
        """Raise if latents `(n, d)` cannot be those of the encoder; fewer than 32 rows pass.

        Args:
            name: of the agent.
            z: at most 1,024 rows, evenly spaced, are looked at.
        """
        if z.ndim != 2 or z.shape[1] != len(self.mean):
            return  # what maps the latents says so
        rows = _sample(z)
        rows = rows[torch.isfinite(rows).all(1)]
        if len(rows) < FEWEST_ROWS:
            return
        ratio = float(rows.square().sum(1).mean()) / self.energy
        if not 1 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
            _refuse(
                name,
                f"their mean square length is {ratio:.3g} times that of the pilots' latents, "
                f"expected {1 / LARGEST_RATIO} to {LARGEST_RATIO}",
            )
        found = similarity(self.mean, self.basis, self.variances, rows)
        if self.structured and found < LEAST_SIMILARITY:
            _refuse(
                name,
                f"neither their means nor their variances resemble those of the pilots' latents: "
                f"the correlation is {found:.2f}, expected at least {LEAST_SIMILARITY}",
            )


def fingerprint(latents: Tensor, found: Support) -> Fingerprint:
    """Return the fingerprint of an encoder.

    Args:
        latents: of the pilots `(n, d)`.
        found: their support.
    """
    wide = latents.double()
    structured = len(wide) >= FEWEST_PILOTS
    if structured:
        half = support(latents[::2])
        variances = half.deviations.square()
        structured = (
            half.rank > 0
            and similarity(half.mean, half.basis, variances, wide[1::2]) >= LEAST_STRUCTURE
        )
    return Fingerprint(
        mean=found.mean,
        basis=found.basis,
        variances=found.deviations.square(),
        energy=float(wide.square().sum(1).mean()),
        structured=structured,
    )


def similarity(mean: Tensor, basis: Tensor, variances: Tensor, z: Tensor) -> float:
    """Return the larger of two correlations, from -1 to 1.

    Of means over coordinates, and of logarithms of variances over principal directions.

    Args:
        mean: `(d,)` of the pilots' latents.
        basis: their principal directions, `(d, r)`.
        variances: `(r,)`, along these.
        z: latents `(n, d)`.
    """
    other = z.mean(0)
    found = ((z - other) @ basis).square().mean(0)
    floor = 1e-12 * found.max()
    logarithms = torch.stack([(found + floor).log(), variances.log()])
    return max(_correlation(torch.stack([other, mean])), _correlation(logarithms))


def _correlation(pair: Tensor) -> float:
    """Return that of two rows; 0 if one of them is constant."""
    one, other = pair - pair.mean(1, keepdim=True)
    lengths = float(torch.linalg.vector_norm(one) * torch.linalg.vector_norm(other))
    return float(one @ other) / lengths if lengths > 0 else 0.0


def _sample(z: Array) -> Tensor:
    numbers = np.unique(np.linspace(0, max(0, len(z) - 1), min(len(z), MOST_ROWS)).astype(int))
    if isinstance(z, np.ndarray):
        return as_tensor("the latents", z[numbers]).double()
    return z.detach()[torch.from_numpy(numbers).to(z.device)].cpu().double()


def _refuse(name: str, reason: str) -> None:
    raise EncoderMismatchError(
        f"these are no latents of the encoder {name!r} was aligned with: {reason}; give latents of "
        "that encoder and version, or encode the pilots again and align, or send with check=False "
        "(--no-check)"
    )
