"""The devices on which tests run: those of this machine, and the stand-in that every one has."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from sheafed import devices

STAND_IN = "standin:0"
OTHERS = [STAND_IN, *({"cuda:0", "mps"} & set(devices.available_devices()))]


@contextmanager
def using(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Provide a device; the backend of the stand-in is registered when it is first needed."""
    if name != STAND_IN:
        yield torch.device(name)
        return
    from tests.helpers import stand_in_device

    monkeypatch.setattr("sheafed.agents.rng.Generator", stand_in_device.generator)
    # Autograd's threads for devices start with its first backward pass, which may have been.
    with torch.autograd.set_multithreading_enabled(False):
        yield torch.device(name)


@contextmanager
def without_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Let the stand-in lack what MPS lacks."""
    with using(STAND_IN, monkeypatch) as device:
        monkeypatch.setattr(devices, "WITHOUT_FLOAT64", {"mps", device.type})
        with torch.get_device_module(device).without_float64():
            yield device
