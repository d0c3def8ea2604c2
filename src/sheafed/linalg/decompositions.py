"""The matrix decompositions the package uses, typed, in one place so that they can be counted."""

import torch
from torch import Tensor

from sheafed.devices import double, has_float64


def svd(m: Tensor, *, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return $U, \sigma, W^\top$ with $M = U \mathrm{diag}(\sigma) W^\top$; thin unless `full`."""
    u, s, wt = torch.linalg.svd(m, full_matrices=full)
    return u, s, wt


def eigh(m: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return $\lambda$, ascending, and $Q$ with $M = Q \mathrm{diag}(\lambda) Q^\top$."""
    values, vectors = torch.linalg.eigh(m)
    return values, vectors


def solve(a: Tensor, b: Tensor) -> Tensor:
    r"""Return $A^{-1} B$; on the CPU where the device has no float64."""
    if has_float64(a.device):
        found: Tensor = torch.linalg.solve(a, b)
        return found
    return solve(double(a), double(b)).to(b)


def pinv(m: Tensor) -> Tensor:
    """Return the pseudoinverse; on the CPU where the device has no float64."""
    if has_float64(m.device):
        found: Tensor = torch.linalg.pinv(m)
        return found
    return pinv(double(m)).to(m)
