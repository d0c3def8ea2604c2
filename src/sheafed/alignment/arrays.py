"""NumPy arrays or torch tensors in, the same out."""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, ShapeError
from sheafed.linalg.checks import check_matrix

Array = NDArray[np.float16] | NDArray[np.float32] | NDArray[np.float64] | Tensor
ArrayT = TypeVar("ArrayT", NDArray[np.float16], NDArray[np.float32], NDArray[np.float64], Tensor)


def as_tensor(name: str, x: Array) -> Tensor:
    """Return latents in the dtype and on the device that they were given on."""
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        x = x.copy()  # a tensor over read-only memory, such as a mapped file, could write there
    try:
        tensor = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DtypeError(f"{name} must be an array of numbers: {problem}") from problem
    if not tensor.is_floating_point():
        raise DtypeError(f"{name} must be floating-point, got {tensor.dtype}; convert them")
    return tensor.detach()


def as_partial_pilots(name: str, x: Array) -> tuple[Tensor, Tensor]:
    """Return latents `(K, d)` and which rows are present: a row of NaN throughout is missing."""
    given = as_tensor(name, x).cpu()  # pilots are few, and all that is fitted to them is float64
    if given.ndim != 2:
        raise ShapeError(f"{name} must be (K, d), got {tuple(given.shape)}; flatten them")
    missing = torch.isnan(given).all(1)
    check_matrix(name, torch.where(missing[:, None], 0.0, given.double()))
    if bool(missing.all()):
        raise EmptyInputError(f"{name} are missing: all of their {len(given)} rows are NaN")
    return given, ~missing


def as_pilots(name: str, x: Array) -> Tensor:
    """Return latents `(K, d)`, checked, in the dtype that they were given in."""
    given = as_tensor(name, x).cpu()
    check_matrix(name, given.double())
    if given.ndim != 2:
        raise ShapeError(f"{name} must be (K, d), got {tuple(given.shape)}; flatten them")
    return given
