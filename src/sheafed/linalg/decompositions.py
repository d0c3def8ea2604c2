"""The matrix decompositions the package uses, typed, in one place so that they can be counted."""

import torch
from torch import Tensor


def svd(m: Tensor, *, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return $U, \sigma, W^\top$ with $M = U \mathrm{diag}(\sigma) W^\top$; thin unless `full`."""
    u, s, wt = torch.linalg.svd(m, full_matrices=full)
    return u, s, wt


def eigh(m: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return $\lambda$, ascending, and $Q$ with $M = Q \mathrm{diag}(\lambda) Q^\top$."""
    values, vectors = torch.linalg.eigh(m)
    return values, vectors
