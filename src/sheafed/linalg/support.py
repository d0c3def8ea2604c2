r"""The support of latents: the directions in which they vary, and by how much.

With the thin SVD $Z - 1\mu^\top = U S V^\top$, cut where the rounding of the latents' own dtype
explains a singular value, $V$ spans the support. Whitened and coloured there, latents of any rank
have an inverse, and nothing is ever written into a direction in which the receiver is constant.
On the support, shrinkage $s$ gives direction k the variance
$(1-s)\sigma_k^2 + s\,\mathrm{mean}(\sigma^2)$.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError
from sheafed.linalg.checks import check_fraction, check_matrix
from sheafed.linalg.decompositions import svd
from sheafed.linalg.identifiability import noise_along, rounding_noise
from sheafed.linalg.procrustes import rank_tolerance
from sheafed.linalg.whitening import Shrinkage, Whitening, ledoit_wolf

# Coordinates that differ from their mean by fewer units of rounding, root mean square, do not
# vary; to store a number takes a third of a unit at most.
ROUNDINGS = 2


@dataclass(frozen=True)
class Support:
    """Where latents vary, in float64."""

    mean: Tensor
    """`(d,)`"""
    basis: Tensor
    """`(d, r)`, orthonormal; rows of coordinates that are constant are exactly zero."""
    deviations: Tensor
    """`(r,)`: standard deviations along the columns of `basis`, descending."""
    spread: Tensor
    """`(d,)`: standard deviations of the coordinates, exactly zero where they are constant."""

    @property
    def rank(self) -> int:
        return len(self.deviations)

    def coordinates(self, z: Tensor) -> Tensor:
        """Return latents `(n, d)` as coordinates `(n, r)` along the basis."""
        return (z.double() - self.mean) @ self.basis

    def shrunk_deviations(self, shrinkage: float) -> Tensor:
        check_fraction("shrinkage", shrinkage)
        if not self.rank:
            return self.deviations
        peak = self.deviations[0]
        squares = (self.deviations / peak).square()
        return peak * ((1 - shrinkage) * squares + shrinkage * squares.mean()).sqrt()


def support(x: Tensor) -> Support:
    """Return the support of latents `(n, d)` as far as the precision of their dtype shows it.

    >>> found = support(torch.tensor([[1.0, 5.0, 2.0], [3.0, 5.0, 6.0], [2.0, 5.0, 4.0]]))
    >>> found.rank, found.spread[1].item()
    (1, 0.0)

    Args:
        x: of any floating-point dtype. Give latents as they were stored: rounding of float16
            that was converted to float64 looks like variance.
    """
    wide = x.double()
    check_matrix("x", wide)
    n = len(x)
    if n < 2:
        raise EmptyInputError(f"a support needs at least two rows, got x of {tuple(x.shape)}")
    mean = wide.mean(0)
    centred = wide - mean
    spread = torch.linalg.vector_norm(centred, dim=0) / n**0.5
    noise = rounding_noise(x, centred)
    constant = spread <= ROUNDINGS * torch.finfo(x.dtype).eps * wide.abs().amax(0)
    # Like the directions below: what rounding explains does not vary.
    dead = constant | (spread * n**0.5 <= noise)
    centred = torch.where(dead, 0.0, centred)
    # Of a tall matrix the triangular factor has the same right singular vectors.
    _, s, vt = svd(torch.linalg.qr(centred, mode="r")[1] if n > x.shape[-1] else centred)
    kept = s > noise_along(vt, noise) + rank_tolerance(s, x.shape, torch.float64)
    return Support(
        mean=torch.where(constant, wide[0], mean),
        basis=torch.where(dead[:, None], 0.0, vt[kept].mT),
        deviations=s[kept] / n**0.5,
        spread=torch.where(dead, 0.0, spread),
    )


def whole_space(dimension: int) -> Support:
    """Return the support that leaves latents as they are: no mean, no scale."""
    ones = torch.ones(dimension, dtype=torch.float64)
    return Support(torch.zeros_like(ones), torch.diag(ones), ones, ones)


def whitening_on(found: Support, shrinkage: Shrinkage, x: Tensor) -> Whitening:
    r"""Return ZCA whitening on a support: $V \Sigma^{-1/2} V^\top$, and zero beside it.

    >>> x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> whitening_on(support(x), 0.0, x).whiten(x.double())
    tensor([[-1.,  0.],
            [ 1.,  0.]], dtype=torch.float64)

    Args:
        found: the support of `x`.
        shrinkage: from 0 to 1, or `"auto"` for the Ledoit-Wolf optimum on the support.
        x: latents `(n, d)`.
    """
    amount = float(ledoit_wolf(found.coordinates(x))) if shrinkage == "auto" else shrinkage
    deviations = found.shrunk_deviations(amount)
    basis = found.basis
    return Whitening(found.mean, (basis / deviations) @ basis.mT, (basis * deviations) @ basis.mT)
