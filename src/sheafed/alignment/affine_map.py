r"""The form that every map between latent spaces has: $z \mapsto W (z - c) + v$."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from sheafed.alignment.arrays import ArrayT, as_array, as_tensor
from sheafed.alignment.products import Products
from sheafed.atomic_io import write_atomically
from sheafed.devices import CPU, has_float64
from sheafed.errors import AlignmentFormatError, DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_finite

# Rows that are mapped at a time: few enough for caches, many beside the dimensions of a product.
CHUNK = 2048


@dataclass(frozen=True)
class AffineMap:
    """A map from a sender's latents to a receiver's, in float64.

    >>> double = AffineMap(2 * torch.eye(2), centre=torch.ones(2), value=torch.zeros(2))
    >>> double.transform(torch.tensor([[1.0, 2.0]]))
    tensor([[0., 2.]])
    >>> double.as_linear().bias.tolist()
    [-2.0, -2.0]
    """

    weight: Tensor
    """`(d_receiver, d_sender)`"""
    centre: Tensor
    """`(d_sender,)`, subtracted first: a bias would lose the digits of a large mean."""
    value: Tensor
    """`(d_receiver,)`, what `centre` is carried to."""

    def __post_init__(self) -> None:
        if self.weight.shape != (*self.value.shape, *self.centre.shape):
            raise ShapeError(
                f"weight must be (d_receiver, d_sender) for value {tuple(self.value.shape)} and "
                f"centre {tuple(self.centre.shape)}, got {tuple(self.weight.shape)}"
            )

    def __call__(self, z: Tensor) -> Tensor:
        """Map latents `(n, d_sender)` of the dtype of the map, where they are."""
        here = z.device
        return (z - self.centre.to(here)) @ self.weight.mT.to(here) + self.value.to(here)

    def transform(self, z: ArrayT) -> ArrayT:
        """Map latents `(n, d_sender)`, or a single one; kind and precision are those of `z`.

        On the CPU, float32 and coarser latents are mapped in float32 where its rounding is harmless
        (`sheafed.alignment.products`), else in float64.
        """
        z = as_array("the latents", z)
        shape = (*z.shape[:-1], len(self.value))
        flat = (math.prod(shape[:-1]), shape[-1])
        found = z.new_empty(flat) if isinstance(z, Tensor) else np.empty(flat, z.dtype)
        for numbers, part in self.chunks(z):
            found[numbers] = part
        return found.reshape(shape)

    def chunks(self, z: ArrayT) -> Iterator[tuple[slice, ArrayT]]:
        """Yield latents that may be larger than memory as `transform` maps them, part by part.

        Args:
            z: latents `(n, d_sender)`, which may be memory-mapped.

        Yields:
            Numbers of rows, and what those rows are mapped to.
        """
        if not z.ndim or z.shape[-1] != len(self.centre):
            raise ShapeError(
                f"the latents must have size {len(self.centre)}, which the map was fitted for, got "
                f"shape {tuple(z.shape)}"
            )
        rows = z.reshape(-1, z.shape[-1])
        if not len(rows):
            raise EmptyInputError(f"the latents are empty: their shape is {tuple(z.shape)}")
        weight, centre, value = (x.detach().cpu() for x in (self.weight, self.centre, self.value))
        products = Products(weight, centre, value, most_rows=min(CHUNK, len(rows)))
        for start in range(0, len(rows), CHUNK):
            numbers = slice(start, min(start + CHUNK, len(rows)))
            name = f"rows {numbers.start} to {numbers.stop - 1} of the latents"
            given = as_tensor(name, rows[numbers])
            if given.device == CPU or not has_float64(given.device):
                read = products.carry(name, given.cpu(), first_row=start)
            else:
                read = self(check_finite(name, given.to(self.weight.dtype), first_row=start))
            narrow = _narrowed(read, given)
            yield numbers, narrow if isinstance(z, Tensor) else narrow.numpy()

    def then(self, following: AffineMap) -> AffineMap:
        """Return this map followed by another one."""
        return AffineMap(following.weight @ self.weight, self.centre, following(self.value))

    def as_linear(self, dtype: torch.dtype = torch.float32) -> nn.Linear:
        """Return the map as a layer, to put between an encoder and a head; it can be trained."""
        layer = nn.Linear(len(self.centre), len(self.value), dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(self.weight)
            layer.bias.copy_(self.value - self.weight @ self.centre)
        return layer

    def save(self, path: str | Path) -> Path:
        """Write the map alone to a safetensors file, atomically."""
        # Maps may share tensors or be views, of which such a file holds none.
        tensors = {part: tensor.contiguous().clone() for part, tensor in vars(self).items()}
        write_atomically(Path(path), safetensors.torch.save(tensors))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        try:
            tensors = safetensors.torch.load(Path(path).read_bytes())
            parts = ("weight", "centre", "value")
            return cls(*(check_finite(part, tensors[part]) for part in parts))
        except OSError as problem:
            raise AlignmentFormatError(f"cannot read {path} ({problem.strerror})") from problem
        except (safetensors.SafetensorError, KeyError, InputError) as problem:
            raise AlignmentFormatError(
                f"{path} holds no map that AffineMap.save wrote: {problem}"
            ) from problem


def _narrowed(read: Tensor, like: Tensor) -> Tensor:
    """Return what was read in the dtype and on the device of what was given."""
    least, most = torch.aminmax(read)
    largest = max(-float(least), float(most))
    if not largest <= torch.finfo(like.dtype).max:  # nor if it is NaN, of infinities
        raise DtypeError(
            f"the receiver's latents reach {largest:.3g}, which {like.dtype} cannot hold; convert "
            "the sender's latents to float32 first"
        )
    return read.to(like)


def identity_map(dimension: int) -> AffineMap:
    zero = torch.zeros(dimension, dtype=torch.float64)
    return AffineMap(torch.eye(dimension, dtype=torch.float64), zero, zero)
