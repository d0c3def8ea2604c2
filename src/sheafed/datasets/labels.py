"""Labels as users have them, as tensors."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError
from sheafed.tensor_tree import to_tensor

Labels = Tensor | NDArray[Any] | Sequence[int]


def as_labels(given: Labels) -> Tensor:
    """Return whole numbers `(n,)`, in a tensor, an array or a list, as a tensor.

    >>> as_labels([0, 2, 1])
    tensor([0, 2, 1])
    """
    labels = as_numbers("labels", given)
    if labels.ndim != 1 or (len(labels) and labels.is_floating_point()):
        raise InputError(
            f"labels must be whole numbers of shape (n,), got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if not len(labels):
        raise EmptyInputError("no labels to divide; give at least one sample")
    return labels


def as_numbers(what: str, given: Any) -> Tensor:
    """Return a tensor, an array or nested lists of numbers as a tensor.

    Args:
        what: this is called in the error if they are none.
        given: as above.
    """
    try:
        return to_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(
            f"{what} must be an array or tensor of numbers ({error}); names become "
            "numbers with numpy.unique(names, return_inverse=True)"
        ) from error
