r"""Quantisation of the latents and predictions in messages.

`none` sends them as they are. `float16` rounds: each value is off by at most $2^{-11}$ of itself.
`int8` sends a whole number from -127 to 127 per value and a scale per pilot: each value is
off by at most 1/254 of the largest of its pilot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from sheafed.errors import NonFiniteError
from sheafed.transport.message import Message, TensorSpec

Quantisation = Literal["none", "float16", "int8"]
LEVELS = 127
PROBABILITIES, OUTPUTS = "probabilities", "outputs"
"""What heads predict of pilots: of classes, or numbers."""


@dataclass(frozen=True)
class LatentCodec:
    """Quantises named tensors `(n, d)` for a message, and back.

    Args:
        quantisation: of latents. Class probabilities, which must sum to 1, are never sent as int8:
            they are sent as float16 then.
        dtype: in which the agents compute.
    """

    quantisation: Quantisation
    dtype: torch.dtype

    def pack(self, **values: Tensor | None) -> dict[str, Tensor]:
        """Return the tensors of a message; what is None is left out."""
        packed: dict[str, Tensor] = {}
        for name, value in values.items():
            if value is not None:
                packed |= pack(name, value, self._quantisation_of(name))
        return packed

    def unpack(self, message: Message, *names: str) -> Message:
        """Return the message with those of its tensors that have these names, dequantised."""
        as_it_is = self.quantisation == "none" and message.tensors.keys() <= set(names)
        if as_it_is and all(t.dtype == self.dtype for t in message.tensors.values()):
            return message
        tensors = {
            name: unpack(name, message.tensors, self._quantisation_of(name), self.dtype)
            for name in names
            if name in message.tensors
        }
        return replace(message, tensors=tensors)

    def specs(self, **shapes: tuple[int, int] | None) -> dict[str, TensorSpec]:
        """Return what the tensors of a message must be; None stands for an absent one."""
        expected: dict[str, TensorSpec] = {}
        for name, shape in shapes.items():
            if shape is not None:
                expected |= packed_specs(name, *shape, self._quantisation_of(name), self.dtype)
        return expected

    def as_sent(self, latents: Tensor) -> Tensor:
        """Return own latents as neighbours receive them, so that both ends solve one problem."""
        return unpack("x", pack("x", latents, self.quantisation), self.quantisation, self.dtype)

    def _quantisation_of(self, name: str) -> Quantisation:
        return (
            "float16"
            if name == PROBABILITIES and self.quantisation == "int8"
            else self.quantisation
        )


def pack(name: str, values: Tensor, quantisation: Quantisation) -> dict[str, Tensor]:
    """Return the tensors of a message for `values` `(n, d)`."""
    if quantisation == "none":
        return {name: values}
    if quantisation == "float16":
        rounded = values.half()
        if not bool(torch.isfinite(rounded).all()):
            raise NonFiniteError(
                f"{name} up to {float(values.abs().max()):.3g} are too large for float16; "
                "take 'int8' or 'none'"
            )
        return {name: rounded}
    scale = values.abs().amax(-1) / LEVELS
    steps = values / torch.where(scale > 0, scale, torch.ones_like(scale))[:, None]
    return {name: steps.round().to(torch.int8), _scale(name): scale}


def unpack(
    name: str, tensors: Mapping[str, Tensor], quantisation: Quantisation, dtype: torch.dtype
) -> Tensor:
    values = tensors[name].to(dtype)
    return values * tensors[_scale(name)][:, None] if quantisation == "int8" else values


def packed_specs(
    name: str, rows: int, width: int, quantisation: Quantisation, dtype: torch.dtype
) -> dict[str, TensorSpec]:
    if quantisation == "int8":
        whole = TensorSpec(torch.int8, (rows, width))
        return {name: whole, _scale(name): TensorSpec(dtype, (rows,))}
    return {name: TensorSpec(torch.float16 if quantisation == "float16" else dtype, (rows, width))}


def _scale(name: str) -> str:
    return f"scale of {name}"
