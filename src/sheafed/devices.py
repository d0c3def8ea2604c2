"""Devices: where agents compute, and what to do where a device has no float64."""

from __future__ import annotations

from itertools import chain
from textwrap import shorten

import torch
from torch import Tensor, nn

from sheafed.errors import InputError

CPU = torch.device("cpu")
WITHOUT_FLOAT64 = {"mps"}
"""The types of devices that have neither float64 nor matrix decompositions."""


def as_device(given: str | torch.device) -> torch.device:
    """Return a device that can be used; `"auto"` is CUDA, else MPS, else the CPU.

    >>> as_device("cpu")
    device(type='cpu')
    """
    try:
        wanted = torch.device(auto_device() if given == "auto" else given)
    except (RuntimeError, TypeError):
        raise InputError(_unusable(given, "unknown type")) from None
    if wanted.type == "meta":
        raise InputError(_unusable(given, "its tensors have no values"))
    try:
        return torch.empty(0, device=wanted).device  # "cuda" becomes "cuda:0"
    except (RuntimeError, AssertionError) as problem:
        reason = shorten(str(problem).partition("\n")[0].rstrip("."), 120, placeholder=" ...")
        raise InputError(_unusable(given, reason)) from problem


def auto_device() -> str:
    """Return what `"auto"` stands for on this machine."""
    return available_devices()[0]


def available_devices() -> list[str]:
    """Return the devices that agents can compute on, the fastest kind first."""
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def device_of(module: nn.Module) -> torch.device:
    """Return where the first parameter or buffer of a module is; the CPU if it has none."""
    return next((x.device for x in chain(module.parameters(), module.buffers())), CPU)


def has_float64(device: torch.device) -> bool:
    return device.type not in WITHOUT_FLOAT64


def double(x: Tensor) -> Tensor:
    """Return a tensor in float64: where it is, or on the CPU if its device has none."""
    return x.double() if has_float64(x.device) else x.cpu().double()


def _unusable(given: object, reason: str) -> str:
    here = ", ".join(available_devices())
    return f"device {str(given)!r} cannot be used ({reason}); this machine has {here}"
