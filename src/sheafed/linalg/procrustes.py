r"""The Procrustes solver: the isometry between two latent spaces that fits the pilots best.

$$V_{ij} = \arg\min_{V \in St(d_i, d_j)} \|A_i - V A_j\|_F^2 = U W^\top,
\qquad A_i A_j^\top = U \Sigma W^\top$$

(eq. procrustes_solution_V). Pilots are rows here, so the paper's $A_i$ is `a.mT`.
"""

import warnings
from typing import Literal

import torch
from torch import Tensor

from sheafed.devices import double, has_float64
from sheafed.errors import (
    IllConditionedWarning,
    InputError,
    ManifoldError,
    ShapeError,
    UndeterminedMapWarning,
)
from sheafed.linalg.checks import check_matrix, check_pair
from sheafed.linalg.decompositions import eigh, svd
from sheafed.linalg.scaling import is_in_range, power_of_two, scaled

Route = Literal["svd", "gram"]

# The Gram route squares the condition number: beyond this ratio of eigenvalues, float64 leaves
# fewer than the five digits that it promises.
GRAM_LIMIT = 1e-10


def procrustes(
    a: Tensor, b: Tensor, *, route: Route = "svd", previous: Tensor | None = None
) -> Tensor:
    r"""Return the best isometry between two sets of latents of the same pilots.

    Args:
        a: pilots of one agent, `(..., K, d_a)`.
        b: the same pilots, encoded by the other, `(..., K, d_b)`.
        route: see `polar_factor`.
        previous: see `polar_factor`.

    Returns:
        $V$ of shape `(..., d_large, d_small)` with orthonormal columns. It carries row latents
        of the smaller space into the larger by `z @ V.mT`, and back by `z @ V`. For equal
        sizes `a` is the head: $V$ carries `b` to `a`.

    >>> b = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> a = b[:, [1, 0]]  # the same pilots, with the coordinates swapped
    >>> v = procrustes(a, b)
    >>> torch.allclose(b @ v.mT, a, atol=1e-6)
    True
    """
    m = cross_covariance(a, b)
    if not is_in_range(m):
        m = _product(scaled(a), scaled(b))
    return _polar(m, route, previous)


def cross_covariance(a: Tensor, b: Tensor) -> Tensor:
    r"""Return $A_{large} A_{small}^\top$, `(..., d_large, d_small)`; `a` is the head on ties.

    >>> cross_covariance(torch.ones(10, 2), torch.ones(10, 3)).shape
    torch.Size([3, 2])
    """
    check_pair("a", a, "b", b)
    return _product(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a.mT @ b if a.shape[-1] >= b.shape[-1] else b.mT @ a


def polar_factor(m: Tensor, *, route: Route = "svd", previous: Tensor | None = None) -> Tensor:
    r"""Return $\arg\max_{V^\top V = I} \mathrm{tr}(V^\top M) = U W^\top$ for $M = U\Sigma W^\top$.

    Args:
        m: cross-covariance `(..., d_large, d_small)`.
        route: `"svd"`, or `"gram"`: $M (M^\top M)^{-1/2}$ by an eigendecomposition of the smaller
            Gram matrix in float64: 20 to 45 times more accurate for float32 input, and about a
            quarter faster for tall matrices, slower for large square ones
            (`benchmarks/procrustes.py`). Ill-conditioned problems go to the SVD with an
            `IllConditionedWarning`.
        previous: a map of the same shape. Where $M$ does not determine $V$ (rank below
            `d_small`), the minimiser nearest to `previous` is taken. Without it that part of
            $V$ is an arbitrary choice, announced by an `UndeterminedMapWarning`.

    >>> polar_factor(torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0.],
            [0., 1.],
            [0., 0.]])
    """
    check_matrix("m", m)
    if m.shape[-2] < m.shape[-1]:
        raise ShapeError(
            "a cross-covariance must be (d_large, d_small) with d_large >= d_small, got "
            f"{tuple(m.shape)}; transpose it"
        )
    return _polar(m, route, previous)


def _polar(m: Tensor, route: Route, previous: Tensor | None) -> Tensor:
    if previous is not None and check_matrix("previous", previous).shape != m.shape:
        raise ShapeError(
            f"previous must have the shape of the map, {tuple(m.shape)}, got "
            f"{tuple(previous.shape)}"
        )
    if route == "gram":
        return _polar_by_gram(m, previous)
    if route == "svd":
        if not has_float64(m.device):  # nor an SVD
            return _polar_by_svd(double(m), previous, precision=m.dtype).to(m)
        return _polar_by_svd(m, previous, precision=m.dtype)
    raise InputError(f"route must be 'svd' or 'gram', got {route!r}")


def _polar_by_gram(m: Tensor, previous: Tensor | None) -> Tensor:
    wide = scaled(double(m))
    values, vectors = eigh(wide.mT @ wide)
    ratio = float((values[..., 0] / values[..., -1].clamp_min(1e-300)).min())
    # Never coarser than the rank that the SVD route would find, or the two would disagree.
    limit = max(GRAM_LIMIT, (max(m.shape[-2:]) * torch.finfo(m.dtype).eps) ** 2)
    if ratio < limit:
        warnings.warn(
            f"the cross-covariance of shape {tuple(m.shape)} is ill-conditioned: its squared "
            f"singular values span a ratio of {ratio:.1e}, the Gram route needs "
            f"{limit:.0e}; solved by SVD instead",
            IllConditionedWarning,
            stacklevel=4,
        )
        return _polar_by_svd(wide, previous, precision=m.dtype).to(m)
    return (((wide @ vectors) * values[..., None, :].rsqrt()) @ vectors.mT).to(m)


def _polar_by_svd(m: Tensor, previous: Tensor | None, precision: torch.dtype) -> Tensor:
    u, s, wt = svd(m)
    ranks = (s > rank_tolerance(s, m.shape, precision)).sum(-1)
    lowest = int(ranks.min())
    if lowest == m.shape[-1]:
        return u @ wt
    if previous is None:
        warnings.warn(
            f"the cross-covariance of shape {tuple(m.shape)} has rank {lowest}: the map is "
            f"undetermined on a subspace of dimension {m.shape[-1] - lowest}; use more pilots, "
            "or a running cross-covariance, or give the previous map",
            UndeterminedMapWarning,
            stacklevel=4,
        )
        return u @ wt
    found = (u @ wt).reshape(-1, *m.shape[-2:])
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (u, wt, double(previous).to(m))]
    for k, rank in enumerate(ranks.reshape(-1).tolist()):
        if rank < m.shape[-1]:
            found[k] = _nearest_minimiser(flat[0][k], flat[1][k], flat[2][k], rank)
    return found.reshape(m.shape)


def _nearest_minimiser(u: Tensor, wt: Tensor, previous: Tensor, rank: int) -> Tensor:
    """Complete the determined part of the map by the isometry nearest to `previous`.

    The completion is the polar factor of what the determined part leaves of `previous`. That
    stays orthogonal to the determined part where it has full rank; where it has not, a basis of
    the complement is needed, which costs a larger decomposition.
    """
    known, w_free = u[:, :rank], wt[rank:].mT
    left = previous @ w_free
    left = left - known @ (known.mT @ left)
    x, s, yt = svd(left)
    if float(s[-1]) < 1e-2:  # rounding in `left`, magnified by 1/s, must stay rounding
        free = svd(known, full=True)[0][:, rank:] if rank else torch.eye(len(u)).to(u)
        x, _, yt = svd(free.mT @ previous @ w_free)
        x = free @ x
    return known @ wt[:rank] + x @ yt @ w_free.mT


def rank_tolerance(s: Tensor, shape: torch.Size, precision: torch.dtype) -> Tensor:
    """Return the size below which singular values `s` of a matrix count as zero.

    `precision` is the dtype in which the matrix was made, which may be coarser than that of `s`.
    """
    return s[..., :1] * max(shape[-2:]) * torch.finfo(precision).eps


def misalignment(own: Tensor, carried: Tensor, energy: float | None = None) -> float | None:
    r"""Return $\|A_i - T A_j\|_F^2 / (\|A_i\|_F^2 + \|A_j\|_F^2)$ of an edge, in the space of i.

    0 if aligned, 1 if unrelated, 2 if opposed. None if all latents are zero.

    >>> head, tail = torch.tensor([[3.0, 4.0]]), torch.tensor([[5.0]])
    >>> misalignment(head, tail @ procrustes(head, tail).mT)
    0.0

    Args:
        own: $A_i$, `(K, d)`.
        carried: $T A_j$, `(K, d)`: the neighbour's latents as the map of the edge carries them.
        energy: $\|A_j\|_F^2$ where $T$ does not keep norms; by default that of `carried`.
    """
    check_pair("own", own, "carried", carried)
    if own.shape != carried.shape:
        raise ShapeError(
            "own and carried latents must lie in one space, got shapes "
            f"{tuple(own.shape)} and {tuple(carried.shape)}; apply the map first"
        )
    scale = torch.maximum(power_of_two(own), power_of_two(carried))
    own, carried = own / scale, carried / scale
    if energy is None:
        energy = float(carried.square().sum())
    else:
        energy = energy / float(scale) / float(scale)
    total = float(own.square().sum()) + energy
    return float((own - carried).square().sum()) / total if total > 0 else None


def check_isometry(name: str, v: Tensor, tolerance: float | None = None) -> Tensor:
    r"""Return `v` if $V^\top V = I$ up to a tolerance (by default one for its dtype).

    >>> check_isometry("v", torch.eye(3)[:, :2]).shape
    torch.Size([3, 2])
    """
    check_matrix(name, v)
    rows, columns = v.shape[-2:]
    if rows < columns:
        raise ManifoldError(
            f"{name} must have at least as many rows as columns, got {tuple(v.shape)}; transpose it"
        )
    if tolerance is None:
        tolerance = 100 * rows * torch.finfo(v.dtype).eps
    identity = torch.eye(columns, dtype=v.dtype, device=v.device)
    deviation = float((v.mT @ v - identity).abs().max())
    if deviation > tolerance:
        raise ManifoldError(
            f"{name} is off its manifold: V^T V differs from the identity by {deviation:.2e}, "
            f"allowed is {tolerance:.2e}; take polar_factor(V) for the nearest isometry"
        )
    return v
