"""The matrix decompositions the package uses, typed, in one place so that they can be counted."""

import scipy.linalg
import torch
from torch import Tensor

from sheafed.devices import double, has_float64


def svd(m: Tensor, *, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return $U, \sigma, W^\top$ with $M = U \mathrm{diag}(\sigma) W^\top$; thin unless `full`.

    By divide and conquer (LAPACK's gesdd). Of some matrices with many equal singular values, as
    those between white latents of fewer pilots than dimensions, that does not converge; they are
    decomposed by QR iteration (gesvd), which is slower and as accurate.
    """
    try:
        u, s, wt = torch.linalg.svd(m, full_matrices=full)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        # What is not finite has no decomposition, and SciPy's has neither gradients nor batches.
        if m.requires_grad or m.ndim > 2 or not bool(torch.isfinite(m).all()):
            raise
        parts = scipy.linalg.svd(m.cpu().numpy(), full_matrices=full, lapack_driver="gesvd")
        u, s, wt = (torch.from_numpy(part).to(m) for part in parts)
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
