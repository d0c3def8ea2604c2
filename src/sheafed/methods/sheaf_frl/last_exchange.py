"""What arrived in the last exchange, which is used until the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sheafed.methods.endpoints import EdgeEndpoint
from sheafed.methods.latent_codec import OUTPUTS, PROBABILITIES
from sheafed.methods.sheaf_frl.round_messages import in_frame, is_comparable
from sheafed.transport.message import Message


@dataclass(frozen=True)
class Received:
    """A neighbour's latents and predictions of some pilots."""

    latents: Tensor
    r"""$T_{ij} A_j$, `(K, d)`: in the receiver's white space."""
    comparable: bool
    """Whether the pilots are those of the exchange, of which the receiver has own latents."""
    predictions: Tensor | None
    """Class probabilities, or the numbers that a head of regression gives."""


@dataclass
class LastExchange:
    """What arrived from the neighbours that took part."""

    round: int = 0
    """Of the exchange, which decides the pilots; an agent that was away may be further by now."""
    received: dict[str, Received] = field(default_factory=dict)
    consensus: Tensor | None = None
    """What neighbours and the agent itself agree on, `(K, classes)`, if models learn it."""

    @classmethod
    def read(
        cls, round: int, messages: Mapping[str, Message], endpoints: Mapping[str, EdgeEndpoint]
    ) -> LastExchange:
        """Read the messages of an exchange that can be read by now."""
        received = {
            j: Received(
                endpoints[j].incoming(message.tensors["latents"]),
                is_comparable(message),
                message.tensors.get(PROBABILITIES, message.tensors.get(OUTPUTS)),
            )
            for j, message in messages.items()
            if endpoints[j].fitted and in_frame(message)
        }
        return cls(round, received)

    def targets(self) -> dict[str, Tensor]:
        """Return the latents that own ones can be compared with, by neighbour."""
        return {j: r.latents for j, r in self.received.items() if r.comparable}

    def predictions(self) -> tuple[Tensor, Tensor] | None:
        """Return latents `(n, d)` and predictions `(n, k)` of all neighbours."""
        given = [
            (r.latents, r.predictions) for r in self.received.values() if r.predictions is not None
        ]
        if not given:
            return None
        latents, predictions = zip(*given, strict=True)
        return torch.cat(latents), torch.cat(predictions)

    def state(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "consensus": self.consensus,
            "received": {j: dict(vars(r)) for j, r in self.received.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LastExchange:
        received = {j: Received(**r) for j, r in state["received"].items()}
        return cls(state["round"], received, state["consensus"])
