"""What was heard in the last exchange, which stands until the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Heard:
    """What a neighbour has said of some pilots."""

    latents: Tensor
    """As the receiver reads them, in its own white space."""
    comparable: bool
    """Whether the pilots are those of the exchange, of which the receiver has own latents."""
    beliefs: Tensor | None


@dataclass
class Standing:
    """What all neighbours that were there have said."""

    round: int = 0
    """Of the exchange, which decides the pilots. Who was away may be further by now."""
    heard: dict[str, Heard] = field(default_factory=dict)

    def targets(self) -> dict[str, Tensor]:
        """Return the latents that own ones can be compared with, by neighbour."""
        return {j: heard.latents for j, heard in self.heard.items() if heard.comparable}

    def beliefs(self) -> tuple[Tensor, Tensor] | None:
        """Return latents `(n, d)` and what is believed of them, `(n, classes)`, of all together."""
        said = [(h.latents, h.beliefs) for h in self.heard.values() if h.beliefs is not None]
        if not said:
            return None
        latents, beliefs = zip(*said, strict=True)
        return torch.cat(latents), torch.cat(beliefs)

    def state(self) -> dict[str, Any]:
        """Return all of it."""
        return {"round": self.round, "heard": {j: asdict(heard) for j, heard in self.heard.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Standing:
        """Return what such a state tells."""
        return cls(state["round"], {j: Heard(**heard) for j, heard in state["heard"].items()})
