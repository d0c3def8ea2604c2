"""Powers of two: division by one is exact, and keeps products of any latents in range."""

import torch
from torch import Tensor

from sheafed.devices import has_float64


def power_of_two(x: Tensor) -> Tensor:
    r"""Return of each matrix of `x` `(..., n, d)` the power p with $p \le \max |x| < 2p$.

    The shape is `(..., 1, 1)`; for a matrix of zeros p is 1. To autograd it is a constant.

    >>> power_of_two(torch.tensor([[3.0, -5.0]]))
    tensor([[4.]])
    """
    peak = torch.linalg.vector_norm(x.detach(), torch.inf, dim=(-2, -1), keepdim=True)
    # From 1/2 to 1. A device without float64 has no `frexp` either.
    mantissa = torch.frexp(peak if has_float64(peak.device) else peak.cpu()).mantissa.to(peak)
    # `ldexp` would compute the power by `pow`, which need not be exact; this quotient is.
    return torch.where(peak > 0, peak / (2 * mantissa), torch.ones_like(peak))


def scaled(x: Tensor) -> Tensor:
    """Return `x` with each of its matrices divided by its `power_of_two`."""
    return x / power_of_two(x)


def is_in_range(product: Tensor) -> bool:
    """Whether no matrix of a product `(..., n, d)` comes near overflow or underflow.

    It may do so although its factors are ordinary numbers: scale them and multiply again.
    """
    peaks = torch.linalg.vector_norm(product.detach(), torch.inf, dim=(-2, -1))
    info = torch.finfo(product.dtype)
    limit = info.tiny**0.5 / info.eps  # where LAPACK scales too, but not by powers of two
    return all(limit < peak < 1 / limit for peak in peaks.flatten().tolist())
