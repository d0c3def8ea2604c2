"""How an encoder is called with inputs of one or several tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sheafed.tensor_tree import TensorTree, tensors


def call_encoder(encode: Callable[..., Tensor], inputs: TensorTree) -> Tensor:
    """Pass a mapping as keyword arguments, a tuple or list as positional ones.

    >>> call_encoder(lambda x, scale: scale * x, {"x": torch.ones(1), "scale": torch.tensor([3.0])})
    tensor([3.])
    >>> call_encoder(torch.add, (torch.ones(1), torch.ones(1)))
    tensor([2.])
    """
    if isinstance(inputs, Mapping):
        return encode(**inputs)
    if isinstance(inputs, tuple | list):
        return encode(*inputs)
    return encode(inputs)


def hint(of: Any) -> str:
    """Return what to do about inputs or outputs that are often wrong; empty if unknown."""
    if hasattr(of, "last_hidden_state"):
        return ": wrap a Hugging Face model in sheafed.models.adapters.HuggingFaceEncoder"
    if isinstance(of, Tensor | Mapping | tuple | list) and any(
        isinstance(tensor, Tensor) and tensor.dtype == torch.uint8 for _, tensor in tensors(of)
    ):
        return (
            "; images in uint8 are given as sheafed.agents.ByteSamples(images, labels), which "
            "gives float32 in [0, 1], or divided by 255"
        )
    return ""
