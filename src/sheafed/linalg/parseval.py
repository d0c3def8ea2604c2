"""Parseval normalisation of pilot matrices (app:pilots)."""

from torch import Tensor

from sheafed.errors import RankError, ShapeError
from sheafed.linalg.checks import check_matrix
from sheafed.linalg.decompositions import svd
from sheafed.linalg.procrustes import rank_tolerance


def parseval(a: Tensor) -> Tensor:
    r"""Return $\tilde A = A (A^\top A)^{-1/2}$, the orthogonal polar factor of the pilots.

    >>> import torch
    >>> a = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    >>> parseval(a)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])

    Args:
        a: pilots `(..., K, d)` with $K \le d$, linearly independent.

    Returns:
        `(..., K, d)` with orthonormal rows: a Parseval frame of the pilots' span.
    """
    check_matrix("a", a)
    pilots, dimension = a.shape[-2:]
    if pilots > dimension:
        raise ShapeError(
            f"Parseval normalisation needs no more pilots than latent dimensions, got {pilots} "
            f"pilots of size {dimension}; with more, whiten instead"
        )
    u, s, wt = svd(a)
    rank = int((s > rank_tolerance(s, a.shape, a.dtype)).sum(-1).min())
    if rank < pilots:
        raise RankError(
            f"the {pilots} pilots span only {rank} dimensions, so their frame has no inverse "
            "square root; drop repeated pilots"
        )
    return u @ wt
