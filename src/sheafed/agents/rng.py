"""An agent's own random stream, on the CPU and on its device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor

from sheafed.devices import CPU
from sheafed.seeds import derive, generator


class RngStream:
    """The state of torch's global streams while an agent draws from them.

    Args:
        device: the agent's; drawing there does not move the CPU's stream.
        seed: of the run.
        name: the agent's.
    """

    def __init__(self, device: torch.device, seed: int, name: str) -> None:
        self.device = device
        self._cpu = generator(seed, name, "noise").get_state()
        self._there: Tensor | None = None
        if device != CPU:
            start = Generator(device=device).manual_seed(derive(seed, name, "noise"))
            self._there = start.get_state()
        self._is_active = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make torch's global streams this agent's own, and give them back.

        Within itself it changes nothing; the streams of other agents may be active in between.
        """
        if self._is_active:
            yield
            return
        outside, there = torch.get_rng_state(), None
        torch.set_rng_state(self._cpu)
        if self._there is not None:
            there = _exchange(self.device, self._there)
        self._is_active = True
        try:
            yield
        finally:
            self._is_active = False
            self._cpu = torch.get_rng_state()
            torch.set_rng_state(outside)
            if there is not None:
                self._there = _exchange(self.device, there)

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint; that of the device is missing on the CPU."""
        found: dict[str, Any] = {"rng_state": self._cpu}
        if self._there is not None:
            found["device_rng_state"] = {self.device.type: self._there}
        return found

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; on another type of device its stream keeps its start."""
        self._cpu = state["rng_state"]
        if self._there is not None:
            there = state.get("device_rng_state", {})
            self._there = there.get(self.device.type, self._there)


def _exchange(device: torch.device, state: Tensor) -> Tensor:
    """Set the state of a device's global stream and return the one that it had."""
    module: Any = torch.get_device_module(device)
    if device.type == "mps":  # there is one, and its functions take no device
        before: Tensor = module.get_rng_state()
        module.set_rng_state(state)
    else:
        before = module.get_rng_state(device)
        module.set_rng_state(state, device)
    return before
