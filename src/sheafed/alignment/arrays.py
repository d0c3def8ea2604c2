"""NumPy arrays or torch tensors in, the same out."""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, ShapeError
from sheafed.linalg.checks import check_matrix
from sheafed.tensor_tree import to_tensor

Array = NDArray[np.float16] | NDArray[np.float32] | NDArray[np.float64] | Tensor
ArrayT = TypeVar("ArrayT", NDArray[np.float16], NDArray[np.float32], NDArray[np.float64], Tensor)


def as_tensor(name: str, x: Array) -> Tensor:
    """Return latents in the dtype and on the device that they were given on."""
    try:
        tensor = to_tensor(x)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DtypeError(f"{name} must be an array of numbers: {problem}") from problem
    if not tensor.is_floating_point():
        raise DtypeError(f"{name} must be floating-point, got {tensor.dtype}; convert them")
    return tensor.detach()


def as_array(name: str, x: ArrayT) -> ArrayT:
    """Return arrays and tensors as they are, and nested lists as an array."""
    if isinstance(x, np.ndarray | Tensor):
        return x
    try:
        return np.asarray(x)
    except ValueError as problem:
        raise DtypeError(f"{name} must be an array of numbers: {problem}") from problem


def _check_table(name: str, x: Tensor) -> Tensor:
    if x.ndim != 2:
        remedy = "flatten them" if x.ndim > 2 else "single numbers are reshape(-1, 1)"
        raise ShapeError(f"{name} must be (K, d), got {tuple(x.shape)}; {remedy}")
    return x


def as_partial_pilots(name: str, x: Array) -> tuple[Tensor, Tensor]:
    """Return latents `(K, d)` and which rows are present: a row of NaN throughout is missing."""
    # Pilots are few, and all that is fitted to them is float64.
    given = _check_table(name, as_tensor(name, x).cpu())
    missing = torch.isnan(given).all(1)
    check_matrix(name, torch.where(missing[:, None], 0.0, given.double()))
    if bool(missing.all()):
        raise EmptyInputError(f"{name} are missing: all of their {len(given)} rows are NaN")
    return given, ~missing


def as_pilots(name: str, x: Array) -> Tensor:
    """Return latents `(K, d)`, checked, in the dtype that they were given in."""
    given = _check_table(name, as_tensor(name, x).cpu())
    check_matrix(name, given.double())
    return given
