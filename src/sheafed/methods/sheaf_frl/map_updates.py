"""The option `maps` at work: the updates of one agent's maps, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from sheafed.methods.endpoints import EdgeEndpoint
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps, MapPolicy
from sheafed.methods.sheaf_frl.round_messages import in_frame
from sheafed.transport.message import Message


@dataclass
class MapUpdates:
    """The updates of the maps at one agent's endpoints.

    Args:
        policy: when, and from what; its rounds are those with an exchange.
        exchange_every: rounds from one exchange to the next.
        rounds_per_epoch: of all rounds.
    """

    policy: MapPolicy | IdentityMaps
    exchange_every: int
    rounds_per_epoch: int
    running: dict[str, Tensor] = field(default_factory=dict)
    """The cross-covariances with the neighbours that decay over rounds."""

    def is_exchanged(self, round: int) -> bool:
        """Whether anything is sent in a round."""
        return round % self.exchange_every == 0

    def number(self, round: int) -> int | None:
        """Return the number of fits before this round's, or None if this round has none."""
        per_epoch = max(1, self.rounds_per_epoch // self.exchange_every)
        return self.policy.fit_number(round // self.exchange_every, per_epoch)

    def sends_all(self, round: int) -> bool:
        """Whether all pilots are sent in a round, beside its own."""
        return self.policy.source == "all" and self.number(round) is not None

    def fit(
        self,
        round: int,
        endpoints: Mapping[str, EdgeEndpoint],
        messages: Mapping[str, Message],
        own: Tensor,
        own_all: Tensor | None,
    ) -> None:
        """Refit the endpoints of the edges on which something arrived, if a fit is due.

        Args:
            round: the current one.
            endpoints: of all edges.
            messages: what arrived.
            own: the own white latents of this round's pilots, as neighbours know them.
            own_all: of all pilots, if they were sent.
        """
        number = self.number(round)
        for j, message in messages.items():
            endpoint, received = endpoints[j], message.tensors["latents"]
            if self.policy.source == "running" and in_frame(message):
                fresh = endpoint.cross(own, received) / len(own)
                before = self.running.get(j)
                self.running[j] = fresh if before is None else self.policy.decay * before + fresh
            if number is None:
                continue
            if j in self.running:
                endpoint.fit(self.running[j], number)
            elif own_all is not None:
                endpoint.fit(endpoint.cross(own_all, message.tensors["all"]), number)
            else:
                endpoint.fit(endpoint.cross(own, received), number)

    def start_from(self, neighbour: str, cross: Tensor) -> None:
        """Start a running cross-covariance from this one, as heavy as after many rounds."""
        if self.policy.source == "running":
            decay = self.policy.decay
            self.running[neighbour] = cross / (1 - decay) if decay < 1 else cross
