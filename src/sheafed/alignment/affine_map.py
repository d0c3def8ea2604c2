r"""The form that every map between latent spaces has: $z \mapsto W (z - c) + v$."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sheafed.alignment.arrays import ArrayT, as_tensor
from sheafed.errors import ShapeError
from sheafed.linalg.checks import check_matrix


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
        """Map latents `(n, d_sender)` of the dtype of the map."""
        return (z - self.centre) @ self.weight.mT + self.value

    def transform(self, z: ArrayT) -> ArrayT:
        """Map latents `(n, d_sender)`, or a single one; kind and precision are those of `z`."""
        given = as_tensor("the latents", z)
        rows = (given[None] if given.ndim == 1 else given).to(self.weight)
        check_matrix("the latents", rows)
        if rows.shape[-1] != len(self.centre):
            raise ShapeError(
                f"the latents must have size {len(self.centre)}, which the map was fitted for, got "
                f"shape {tuple(given.shape)}"
            )
        read = self(rows)
        result = read.reshape(*given.shape[:-1], read.shape[-1]).to(given)
        return result if isinstance(z, Tensor) else result.numpy()

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


def identity_map(dimension: int) -> AffineMap:
    zero = torch.zeros(dimension, dtype=torch.float64)
    return AffineMap(torch.eye(dimension, dtype=torch.float64), zero, zero)
