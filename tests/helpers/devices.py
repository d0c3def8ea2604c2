"""The devices on which tests run: those of this machine, and the stand-in that every one has."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from sheafed import devices

STAND_IN = "standin:0"
OTHERS = [STAND_IN, *({"cuda:0", "mps"} & set(devices.available_devices()))]


def prepare(name: str, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Return a device; the backend of the stand-in is registered when it is first needed."""
    if name == STAND_IN:
        from tests.helpers import stand_in_device

        monkeypatch.setattr("sheafed.agents.rng.Generator", stand_in_device.generator)
    return torch.device(name)


@contextmanager
def without_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Let the stand-in lack what MPS lacks."""
    device = prepare(STAND_IN, monkeypatch)
    from tests.helpers import stand_in_device

    monkeypatch.setattr(devices, "WITHOUT_FLOAT64", {"mps", device.type})
    with stand_in_device.STAND_IN.without_float64():
        yield device
