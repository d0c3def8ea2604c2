"""What was heard in the last exchange, which stands until the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Received:
    """What a neighbour has said of some pilots."""

    latents: Tensor
    """As the receiver reads them, in its own white space."""
    comparable: bool
    """Whether the pilots are those of the exchange, of which the receiver has own latents."""
    probabilities: Tensor | None


@dataclass
class LastExchange:
    """What all neighbours that were there have said."""

    round: int = 0
    """Of the exchange, which decides the pilots. Who was away may be further by now."""
    heard: dict[str, Received] = field(default_factory=dict)

    def targets(self) -> dict[str, Tensor]:
        """Return the latents that own ones can be compared with, by neighbour."""
        return {j: heard.latents for j, heard in self.heard.items() if heard.comparable}

    def probabilities(self) -> tuple[Tensor, Tensor] | None:
        """Return latents `(n, d)` and class probabilities, `(n, classes)`, of all together."""
        said = [
            (h.latents, h.probabilities) for h in self.heard.values() if h.probabilities is not None
        ]
        if not said:
            return None
        latents, probabilities = zip(*said, strict=True)
        return torch.cat(latents), torch.cat(probabilities)

    def state(self) -> dict[str, Any]:
        """Return all of it."""
        return {"round": self.round, "heard": {j: asdict(heard) for j, heard in self.heard.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LastExchange:
        """Return what such a state tells."""
        return cls(state["round"], {j: Received(**heard) for j, heard in state["heard"].items()})
