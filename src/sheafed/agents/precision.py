"""Half precision: encoders and heads may compute in it, everything beyond them does not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sheafed.errors import DtypeError, InputError

Precision = Literal["full", "bf16"]
HALF = (torch.bfloat16, torch.float16)


def check_precision(name: str, precision: Precision) -> Precision:
    if precision not in get_args(Precision):
        raise InputError(
            f"agent {name!r}: precision must be one of {get_args(Precision)}, got {precision!r}"
        )
    return precision


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Return the context of a forward pass of an encoder or a head."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def widened(x: Tensor) -> Tensor:
    """Return half precision as float32, and anything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in HALF else x


def half_dtype(module: nn.Module | None) -> torch.dtype | None:
    """Return the half precision that all floating-point weights of a module have, if they do."""
    found = None
    for weight in () if module is None else module.parameters():
        if not weight.is_floating_point():
            continue
        if weight.dtype not in HALF or found not in (None, weight.dtype):
            return None  # at the first weight of most modules: this is asked in every pass
        found = weight.dtype
    return found


def check_trainable(name: str, module: nn.Module) -> None:
    """Raise if weights in float16 would be trained: their gradients underflow without scaling."""
    for weight in module.parameters():
        if weight.requires_grad and weight.dtype == torch.float16:
            raise DtypeError(
                f"agent {name!r} would train weights in float16, whose gradients underflow; "
                "convert them by .float() and give precision='bf16', or freeze them"
            )
