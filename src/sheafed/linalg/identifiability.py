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
    """Return the rank of latents `(K, d)` as far as the precision of their dtype shows it.

    Singular values that some roundings explain (`rounding_noise`) count as zero.

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
    # Of a tall matrix the triangular factor has the same right singular vectors.
    tall = len(x) > x.shape[-1]
    _, s, vt = svd(torch.linalg.qr(differences, mode="r")[1] if tall else differences)
    noise = noise_along(vt, rounding_noise(x, differences * scale) / float(scale))
    return int((s > noise + rank_tolerance(s, x.shape, torch.float64)).sum())


def rounding_noise(x: Tensor, differences: Tensor) -> Tensor:
    r"""Return for each coordinate `(d,)` the singular values that rounding explains.

    A coordinate is stored with a relative error of $\epsilon$, so with noise of size
    $\epsilon\,\mathrm{rms}$ of that coordinate: a large one says nothing of the others. The sums
    behind latents, in float32 at least, mix all coordinates: their noise is relative to what varies
    in the whole, which falls short where all terms of the sums have a common offset many times as
    large as what varies: the rank then comes out too high. The largest singular value of noise of
    size $\sigma$ in every entry is about
    $\sigma\,(\sqrt K + \sqrt d)$.

    Args:
        x: latents `(K, d)`, in the dtype that they were stored in.
        differences: those from what is subtracted of them, in float64.
    """
    stored = torch.finfo(x.dtype).eps
    summed = min(stored, torch.finfo(torch.float32).eps)
    wide = double(x)
    scale = power_of_two(wide)
    own = (wide / scale).square().mean(0).sqrt() * scale[0]
    whole = (differences / scale).square().mean().sqrt() * scale[0]
    rows, columns = x.shape
    return (STORED * stored * own + SUMMED * summed * whole) * (
        math.sqrt(rows) + math.sqrt(columns)
    )


def noise_along(directions: Tensor, noise: Tensor) -> Tensor:
    """Return the noise along orthonormal directions `(r, d)`, `(r,)`, of that of coordinates."""
    return (directions * noise).square().sum(-1).sqrt()
