r"""How exactly latents cross the wire: what an exchange may cost in bytes.

`full` sends them as they are. `half` rounds to float16: each value is off by at most $2^{-11}$ of
itself. `byte` sends a whole number from -127 to 127 per value and a scale per pilot: each value is
off by at most 1/254 of the largest of its pilot.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from sheafed.domain.messages import TensorSpec
from sheafed.errors import NonFiniteError

Precision = Literal["full", "half", "byte"]
LEVELS = 127


def pack(name: str, values: Tensor, precision: Precision) -> dict[str, Tensor]:
    """Return the tensors of a message that stand for `values` `(n, d)`."""
    if precision == "full":
        return {name: values}
    if precision == "half":
        rounded = values.half()
        if not bool(torch.isfinite(rounded).all()):
            raise NonFiniteError(
                f"{name} up to {float(values.abs().max()):.3g} are too large for half precision; "
                "take 'byte' or 'full'"
            )
        return {name: rounded}
    scale = values.abs().amax(-1) / LEVELS
    steps = values / torch.where(scale > 0, scale, torch.ones_like(scale))[:, None]
    return {name: steps.round().to(torch.int8), _scale(name): scale}


def unpack(
    name: str, tensors: Mapping[str, Tensor], precision: Precision, dtype: torch.dtype
) -> Tensor:
    """Return what such tensors stand for."""
    values = tensors[name].to(dtype)
    return values * tensors[_scale(name)][:, None] if precision == "byte" else values


def packed_specs(
    name: str, rows: int, width: int, precision: Precision, dtype: torch.dtype
) -> dict[str, TensorSpec]:
    """Return what such tensors must be."""
    if precision == "byte":
        whole = TensorSpec(torch.int8, (rows, width))
        return {name: whole, _scale(name): TensorSpec(dtype, (rows,))}
    return {name: TensorSpec(torch.float16 if precision == "half" else dtype, (rows, width))}


def _scale(name: str) -> str:
    return f"scale of {name}"
