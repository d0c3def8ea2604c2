"""Labelled data sets in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_finite


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """Inputs with labels.

    >>> images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> dataset = LabelledDataset("mine", images, torch.tensor([0, 1, 1, 0]), ("cat", "dog"))
    >>> len(dataset), dataset.shape, dataset.float_inputs().dtype
    (4, (1, 8, 8), torch.float32)

    Args:
        name: in messages.
        inputs: images `(n, c, h, w)` or vectors `(n, p)`. Images may be uint8; `float_inputs` is
            what models take.
        labels: `(n,)` int64 in 0..k-1.
        classes: names of the k classes.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.inputs):
            raise EmptyInputError(f"{self.name}: no samples; give at least one")
        if self.inputs.ndim not in (2, 4):
            raise ShapeError(
                f"{self.name}: inputs must have shape (n, c, h, w) or (n, p), got "
                f"{tuple(self.inputs.shape)}; reshape them"
            )
        if self.inputs.dtype != torch.uint8:
            if not self.inputs.is_floating_point():
                raise DtypeError(
                    f"{self.name}: inputs must be uint8 or floating-point, got "
                    f"{self.inputs.dtype}; convert them"
                )
            check_finite(f"{self.name}: inputs", self.inputs)
        if self.labels.shape != self.inputs.shape[:1] or self.labels.dtype != torch.int64:
            raise ShapeError(
                f"{self.name}: labels must be int64 of shape ({len(self.inputs)},), one per "
                f"input, got {self.labels.dtype} of shape {tuple(self.labels.shape)}"
            )
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise InputError(
                f"{self.name}: labels must lie in 0..{len(self.classes) - 1} for "
                f"{len(self.classes)} classes, got {low}..{high}; number the classes from 0 on"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def float_inputs(self, indices: Tensor | None = None) -> Tensor:
        """Return all or some inputs as float32; uint8 values are divided by 255."""
        chosen = self.inputs if indices is None else self.inputs[indices]
        return chosen / 255 if chosen.dtype == torch.uint8 else chosen.float()
