"""Checks of arguments, with errors that name them."""

import math
import operator

import torch
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, NonFiniteError, ShapeError

FLOATING = (torch.float32, torch.float64)


def check_matrix(name: str, x: Tensor) -> Tensor:
    """Return `x` if it is a finite, non-empty float32 or float64 tensor `(..., n, d)`."""
    if not isinstance(x, Tensor):
        raise DtypeError(
            f"{name} must be a torch tensor, got {type(x).__name__}; wrap arrays in torch.as_tensor"
        )
    if x.dtype not in FLOATING:
        raise DtypeError(f"{name} must be float32 or float64, got {x.dtype}; convert it first")
    if x.ndim < 2:
        raise ShapeError(
            f"{name} must have shape (..., rows, columns), got {tuple(x.shape)}; "
            "a single row is x[None]"
        )
    if x.numel() == 0:
        raise EmptyInputError(f"{name} is empty: its shape is {tuple(x.shape)}")
    check_finite(name, x)
    return x


def check_finite(name: str, x: Tensor, first_row: int = 0) -> Tensor:
    """Return `x` if all its entries are finite; `first_row` is its number in what `x` is of."""
    finite = torch.isfinite(x)
    if not bool(finite.all()):
        bad = int((~finite).sum())
        where = tuple(int(i) for i in (~finite).nonzero()[0])
        shown = (where[0] + first_row, *where[1:]) if where else where
        raise NonFiniteError(
            f"{name} holds {bad} non-finite of {x.numel()} values, the first at {shown}: "
            f"{x[where].item()}; fix what produced it, nothing is repaired here"
        )
    return x


def check_pair(name_a: str, a: Tensor, name_b: str, b: Tensor) -> tuple[Tensor, Tensor]:
    """Check two matrices whose rows correspond: same batch, same number of rows, same type."""
    check_matrix(name_a, a)
    check_matrix(name_b, b)
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(
            f"{name_a} and {name_b} must hold the same pilots row by row, got shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    if a.dtype != b.dtype:
        raise DtypeError(
            f"{name_a} and {name_b} must have one dtype, got {a.dtype} and {b.dtype}; convert one"
        )
    return a, b


def check_single_pair(name_a: str, a: Tensor, name_b: str, b: Tensor) -> tuple[Tensor, Tensor]:
    """Check two matrices whose rows correspond, for a function that takes no batches."""
    check_pair(name_a, a, name_b, b)
    if a.ndim != 2:
        raise ShapeError(
            f"{name_a} and {name_b} must be single matrices, got a batch of shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}; take its members one by one"
        )
    return a, b


def check_fraction(name: str, value: float) -> float:
    """Return `value` if it lies in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name} must lie in [0, 1], got {value}")
    return value


def as_int(value: object) -> int | None:
    """Return a whole number, of NumPy too, as an int; None for anything else and for a bool.

    >>> as_int(torch.tensor(3)), as_int(3.0), as_int(True)
    (3, None, None)
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_int(name: str, value: int, least: int, most: float = math.inf) -> int:
    """Return `value` if it is an int (no bool) from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} must be an int from {least} to {most}, got {value!r}")
    return value
