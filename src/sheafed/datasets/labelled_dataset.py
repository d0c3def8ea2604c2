"""Labelled data sets in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from sheafed.datasets.modalities import MODALITIES
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
        return as_float(self.inputs if indices is None else self.inputs[indices])

    def take(self, indices: Tensor) -> Self:
        """Return some of the samples, in this order, as a data set of the same classes."""
        return replace(self, inputs=self.inputs[indices], labels=self.labels[indices])

    def view(self, form: str, indices: Tensor) -> Tensor:
        """Return samples in a modality; pixels as they are stored, e.g. as uint8.

        >>> images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
        >>> dataset = LabelledDataset("mine", images, torch.tensor([0, 1, 1, 0]), ("cat", "dog"))
        >>> dataset.view("fourier", torch.tensor([3, 1])).shape
        torch.Size([2, 1, 8, 5])
        """
        if form == "pixels":
            return self.inputs[indices]
        if len(self.shape) != 3:
            raise ShapeError(
                f"the samples of {self.name} are no images, they have the shape {self.shape}"
            )
        return MODALITIES[form](self.float_inputs(indices))

    def shape_of(self, form: str) -> tuple[int, ...]:
        """Return the shape of one sample in a modality."""
        return tuple(self.view(form, torch.zeros(1, dtype=torch.long)).shape[1:])

    def shows_images(self, form: str) -> bool:
        """Whether samples in this modality can be shifted, rotated and erased in part."""
        return form == "pixels" and len(self.shape) == 3


def as_float(inputs: Tensor) -> Tensor:
    """Return inputs as float32; uint8 values are divided by 255."""
    return inputs / 255 if inputs.dtype == torch.uint8 else inputs.float()
