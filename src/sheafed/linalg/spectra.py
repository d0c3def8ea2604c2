"""How many directions latents use, and how much two latent spaces have in common."""

import torch
from torch import Tensor

from sheafed.errors import RankError
from sheafed.linalg.checks import check_matrix, check_single_pair
from sheafed.linalg.decompositions import svd
from sheafed.linalg.procrustes import rank_tolerance


def effective_rank(x: Tensor) -> Tensor:
    r"""Return $\exp(-\sum_k p_k \log p_k)$, $p = \sigma / \sum\sigma$, of `x` `(..., n, d)`.

    1 when all rows lie on one line, d when every direction is used alike. Centre `x` first to
    judge variation instead of position.
    """
    check_matrix("x", x)
    _, s, _ = svd(x)
    total = s.sum(-1, keepdim=True)
    if bool((total == 0).any()):
        raise RankError(f"x of shape {tuple(x.shape)} is zero: its effective rank is undefined")
    p = s / total
    return torch.exp(-torch.special.xlogy(p, p).sum(-1))


def canonical_correlations(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlations, largest first, between centred `a` `(n, d_a)` and `b` `(n, d_b)`.

    Directions without variance are left out, so there are as many as the smaller rank. With no
    more rows than dimensions they are all 1 and say nothing.
    """
    check_single_pair("a", a, "b", b)
    bases = [_basis_of_centred(name, x) for name, x in (("a", a), ("b", b))]
    return svd(bases[0].mT @ bases[1])[1].clamp(0, 1)


def _basis_of_centred(name: str, x: Tensor) -> Tensor:
    u, s, _ = svd(x - x.mean(-2, keepdim=True))
    # Subtracting the mean of a constant leaves its rounding error, which is no direction.
    rounding = 8 * torch.finfo(x.dtype).eps * torch.linalg.matrix_norm(x)
    rank = int((s > rank_tolerance(s, x.shape, x.dtype).clamp_min(rounding)).sum())
    if rank == 0:
        raise RankError(f"{name} of shape {tuple(x.shape)} is constant: it correlates with nothing")
    return u[:, :rank]
