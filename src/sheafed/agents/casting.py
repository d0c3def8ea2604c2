"""Inputs in the precision that an encoder computes in."""

from __future__ import annotations

from warnings import warn

import torch
from torch import Tensor, nn

from sheafed.errors import InputCastWarning
from sheafed.tensor_tree import TensorTree, map_tensors


def is_in_float32(module: nn.Module) -> bool:
    """Return whether a module has floating-point weights, all of them in float32."""
    return {p.dtype for p in module.parameters() if p.is_floating_point()} == {torch.float32}


class InputCast:
    """Casts float64 inputs, NumPy's default, to float32 if an encoder's weights are float32.

    >>> cast = InputCast("ada", nn.Linear(4, 2))
    >>> cast(torch.tensor([3])).dtype  # whole numbers, e.g. token ids, are left alone
    torch.int64

    Args:
        name: of the agent, for the warning, of which there is at most one.
        encoder: decides by the types of its parameters when this object is made.
    """

    def __init__(self, name: str, encoder: nn.Module) -> None:
        self._name = name
        self._casts = is_in_float32(encoder)
        self._warned = False

    def __call__(self, inputs: TensorTree) -> TensorTree:
        return map_tensors(self._cast, inputs) if self._casts else inputs

    def _cast(self, tensor: Tensor) -> Tensor:
        if tensor.dtype != torch.float64:
            return tensor
        if not self._warned:
            self._warned = True
            warn(
                f"agent {self._name!r}: inputs in float64 are cast to float32, the type of its "
                "encoder's weights; convert them once, x.astype('float32') or x.float(), to save "
                "time and memory, or compute in float64 with encoder.double() and head.double()",
                InputCastWarning,
                stacklevel=7,  # where the agent is made
            )
        return tensor.float()
