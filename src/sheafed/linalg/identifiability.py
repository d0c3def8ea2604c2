r"""Whether, and where, the pilots determine a transport map (app:identifiability).

$U W^\top$ is unique exactly when $M = A_i A_j^\top$ has full column rank: then it equals
$M (M^\top M)^{-1/2}$. Repeated singular values, which the paper excludes as well, rotate $U$ and
$W$ together and leave the product alone. With rank $r < d_j$ the map is determined on the span
of the $r$ leading right singular vectors only.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed.devices import double
from sheafed.linalg.checks import check_single_pair
from sheafed.linalg.decompositions import svd
from sheafed.linalg.procrustes import cross_covariance, rank_tolerance
from sheafed.linalg.scaling import power_of_two, scaled

# Roundings that latents have behind them, generously: one when they were stored, and those of sums,
# which are taken in float32 at least.
STORED, SUMMED = 2, 16


@dataclass(frozen=True)
class Identifiability:
    """How far the pilots determine the map of an edge."""

    pilots: int
    """K, the number of pilots."""
    rank_a: int
    rank_b: int
    rank_cross: int
    """The rank of the cross-covariance, r."""
    dimension: int
    """d_small, the rank that would determine the map."""
    smallest: float
    """The smallest of the d_small singular values."""
    gap: float
    """(s_r - s_{r+1}) / s_1 with s_{d_small + 1} = 0: how clearly the rank is r."""
    subspace: Tensor
    """`(d_small, r)`: an orthonormal basis of the subspace on which the map is determined."""

    @property
    def determined(self) -> bool:
        """Whether there is exactly one best map."""
        return self.rank_cross == self.dimension

    @property
    def undetermined_dimension(self) -> int:
        """The dimension of the subspace on which any isometry does as well."""
        return self.dimension - self.rank_cross

    def __str__(self) -> str:
        if self.determined:
            return f"determined by {self.pilots} pilots (gap {self.gap:.2e})"
        return (
            f"undetermined on a subspace of dimension {self.undetermined_dimension} of "
            f"{self.dimension}: {self.pilots} pilots give a cross-covariance of rank "
            f"{self.rank_cross}"
        )


def identifiability(
    a: Tensor,
    b: Tensor,
    *,
    ranks: tuple[int, int] | None = None,
    precision: torch.dtype | None = None,
) -> Identifiability:
    """Analyse the Procrustes problem of the pilots `a` `(K, d_a)` and `b` `(K, d_b)`.

    >>> few = identifiability(torch.eye(4)[:2], torch.eye(3)[:2])
    >>> print(few)
    undetermined on a subspace of dimension 1 of 3: 2 pilots give a cross-covariance of rank 2

    Args:
        a: pilots of one agent.
        b: the same pilots, encoded by the other.
        ranks: of the latents that `a` and `b` were computed from, if they were: whitening
            amplifies rounding, and shows a rank that the latents did not have.
        precision: the dtype in which those were computed, if coarser.
    """
    check_single_pair("a", a, "b", b)
    precision = precision or a.dtype
    ranks = ranks or (numerical_rank(a), numerical_rank(b))
    # In float64: the rank of a product of float32 matrices drowns in the rounding of the product.
    m = cross_covariance(scaled(double(a)), scaled(double(b)))
    _, s, wt = svd(m)
    dimension = m.shape[-1]
    # A product cannot have a higher rank than its factors, whatever rounding says.
    rank = min(int((s > rank_tolerance(s, m.shape, precision)).sum()), *ranks)
    following = float(s[rank]) if rank < dimension else 0.0
    return Identifiability(
        pilots=a.shape[-2],
        rank_a=ranks[0],
        rank_b=ranks[1],
        rank_cross=rank,
        dimension=dimension,
        smallest=float(s[-1]) * float(power_of_two(a)) * float(power_of_two(b)),
        gap=(float(s[rank - 1]) - following) / float(s[0]) if rank else 0.0,
        subspace=wt[:rank].mT.to(a),
    )


def numerical_rank(x: Tensor, about: Tensor | None = None) -> int:
    r"""Return the rank of latents `(K, d)` as far as the precision of their dtype shows it.

    Rounding by a relative error $\epsilon$ adds noise of size $\epsilon\,\mathrm{rms}(x)$ to every
    entry, whose largest singular value is about $\epsilon\,\mathrm{rms}(x)\,(\sqrt K + \sqrt d)$.
    Singular values that some roundings explain count as zero.

    >>> numerical_rank(torch.tensor([[1.0, 1.1], [3.0, 3.3]]))
    1

    Args:
        x: latents, of any floating-point dtype.
        about: a point `(d,)` that is subtracted first, in float64, as whitening does: the rank is
            then that of the differences, but the rounding that of `x` itself.
    """
    wide = double(x)
    scale = power_of_two(wide)
    wide = wide / scale
    differences = wide if about is None else wide - double(about) / scale[0]
    s = torch.linalg.svdvals(differences)
    noise = rounding_noise(x) / float(scale)
    return int((s > noise + rank_tolerance(s, x.shape, torch.float64)).sum())


def rounding_noise(x: Tensor) -> float:
    """Return the singular values of latents `(K, d)` that the rounding of their dtype explains."""
    stored = torch.finfo(x.dtype).eps
    summed = min(stored, torch.finfo(torch.float32).eps)
    wide = double(x)
    scale = power_of_two(wide)
    size = float((wide / scale).square().mean().sqrt()) * float(scale)
    rows, columns = x.shape
    return (STORED * stored + SUMMED * summed) * size * (math.sqrt(rows) + math.sqrt(columns))
