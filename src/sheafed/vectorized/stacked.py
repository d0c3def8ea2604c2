"""Activations of several agents in one tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stacked:
    """The activations of a layer, of as many samples for every agent.

    They are `(agents, n, ...)`, as batched matrix products have them, or, with the channels of all
    agents side by side, `(n, agents * c, ...)`, as grouped convolutions have them.
    """

    value: Tensor
    agents: int
    side_by_side: bool = False

    def apart(self) -> Tensor:
        """Return them as `(agents, n, ...)`."""
        if not self.side_by_side:
            return self.value
        n, channels, *rest = self.value.shape
        return self.value.reshape(n, self.agents, channels // self.agents, *rest).transpose(0, 1)

    def joined(self) -> Tensor:
        """Return them as `(n, agents * c, ...)`; images with their channels last in memory."""
        if self.side_by_side:
            return self.value
        if self.value.ndim != 5:
            return self.value.transpose(0, 1).flatten(1, 2)
        # One copy straight to the layout in which grouped convolutions are twice as fast.
        return self.value.permute(1, 3, 4, 0, 2).flatten(3).contiguous().permute(0, 3, 1, 2)

    def with_value(self, value: Tensor) -> Stacked:
        """Return other activations in the same form."""
        return Stacked(value, self.agents, self.side_by_side)

    @classmethod
    def of(cls, parts: list[Tensor]) -> Stacked:
        """Return the activations, or the inputs, of several agents, each `(n, ...)`."""
        return cls(torch.stack(parts), len(parts))
