"""Matrices with known properties, made by NumPy in double precision, for the linalg tests."""

import numpy as np
import torch
from hypothesis import settings
from torch import Tensor

PROPERTY = settings(derandomize=True, deadline=None, max_examples=25)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(rng(seed).standard_normal(shape)).to(dtype)


def orthonormal(seed: int, rows: int, columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A random `(rows, columns)` matrix with orthonormal columns."""
    return torch.from_numpy(np.linalg.qr(rng(seed).standard_normal((rows, columns)))[0]).to(dtype)


def with_spectrum(
    seed: int, rows: int, spectrum: np.ndarray | list[float], dtype: torch.dtype = torch.float64
) -> Tensor:
    """A random `(rows, len(spectrum))` matrix with these singular values."""
    s = torch.as_tensor(np.asarray(spectrum, dtype=np.float64))
    u, w = orthonormal(seed, rows, len(s)), orthonormal(seed + 1000, len(s), len(s))
    return ((u * s) @ w.mT).to(dtype)


def pilots_of(m: Tensor, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pilots `a` `(count, d_large)` and `b` `(count, d_small)` with `a.mT @ b == m`."""
    basis = orthonormal(seed, count, m.shape[1], m.dtype)
    return basis @ m.mT, basis


def centred_orthonormal(seed: int, rows: int, columns: int) -> Tensor:
    """Orthonormal columns that all have mean zero."""
    x = rng(seed).standard_normal((rows, columns))
    return torch.from_numpy(np.linalg.qr(x - x.mean(0))[0])


def deviation(x: Tensor, y: Tensor | np.ndarray) -> float:
    expected = y if isinstance(y, Tensor) else torch.from_numpy(np.array(y))
    return float((x.detach().double() - expected.detach().double()).abs().max())


def residual(a_head: Tensor, a_tail: Tensor, v: Tensor) -> Tensor:
    """|A_i - V A_j|_F^2 (eq. local_gluing) in the larger space, for one problem or a batch."""
    return (a_head - a_tail @ v.mT).square().sum((-2, -1))


def misalignment(a_head: Tensor, a_tail: Tensor, v: Tensor) -> float:
    """The oracle for every misalignment that is reported: NumPy, in the paper's column layout."""
    head, tail, w = (x.detach().double().numpy() for x in (a_head.mT, a_tail.mT, v))
    energy = np.linalg.norm(head) ** 2 + np.linalg.norm(tail) ** 2
    return float(np.linalg.norm(head - w @ tail) ** 2 / energy)
