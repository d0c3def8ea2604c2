"""The option `maps` at work: the updates of one agent's maps, round by round."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from sheafed.methods.endpoints import EdgeEndpoint, PlainEndpoint, TransportEndpoint
from sheafed.methods.shared_solver import SharedSolver, solve
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps, MapPolicy
from sheafed.methods.sheaf_frl.round_messages import in_frame
from sheafed.transport.message import Message

Solved = PlainEndpoint | TransportEndpoint
"""Endpoints whose map is that of a Procrustes problem."""


class Fit(NamedTuple):
    """An endpoint that is to be refitted to a cross-covariance, if it is its turn."""

    endpoint: EdgeEndpoint
    m: Tensor
    number: int
    """Of fits before this one."""

    def solve(self) -> None:
        self.endpoint.fit(self.m, self.number)


def solve_together(fits: Sequence[Fit]) -> None:
    """Solve many fits; those of one shape that the default solver solves, all at once."""
    waiting: dict[Hashable, list[tuple[Solved, Tensor]]] = {}
    for fit in fits:
        endpoint, m, number = fit
        if not isinstance(endpoint, Solved) or not (
            endpoint.solver is solve or type(endpoint.solver) is SharedSolver
        ):
            fit.solve()
        elif endpoint.is_due(number):
            shared = endpoint.solver if isinstance(endpoint.solver, SharedSolver) else None
            known = None if shared is None else shared.recall(m, endpoint.map)
            if known is None:
                waiting.setdefault((m.shape, m.dtype, m.device), []).append((endpoint, m))
            else:
                endpoint.map, endpoint.fitted = known, True
    for alike in waiting.values():
        before = torch.stack([endpoint.map for endpoint, _ in alike])
        solved = solve(torch.stack([m for _, m in alike]), before)
        for (endpoint, m), solution in zip(alike, solved, strict=True):
            found = solution.clone()  # a map of its own, not a part of all of them
            if isinstance(endpoint.solver, SharedSolver):
                endpoint.solver.remember(m, endpoint.map, found)
            endpoint.map, endpoint.fitted = found, True


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

    def fits(
        self,
        round: int,
        endpoints: Mapping[str, EdgeEndpoint],
        messages: Mapping[str, Message],
        own: Tensor,
        own_all: Tensor | None,
    ) -> list[Fit]:
        """Return the fits of the edges on which something arrived, if any are due.

        Args:
            round: the current one.
            endpoints: of all edges.
            messages: what arrived.
            own: the own white latents of this round's pilots, as neighbours know them.
            own_all: of all pilots, if they were sent.
        """
        number, found = self.number(round), []
        for j, message in messages.items():
            endpoint, received = endpoints[j], message.tensors["latents"]
            if self.policy.source == "running" and in_frame(message):
                fresh = endpoint.cross(own, received) / len(own)
                before = self.running.get(j)
                self.running[j] = fresh if before is None else self.policy.decay * before + fresh
            if number is None:
                continue
            if j in self.running:
                m = self.running[j]
            elif own_all is not None:
                m = endpoint.cross(own_all, message.tensors["all"])
            else:
                m = endpoint.cross(own, received)
            found.append(Fit(endpoint, m, number))
        return found

    def start_from(self, neighbour: str, cross: Tensor) -> None:
        """Start a running cross-covariance from this one, as heavy as after many rounds."""
        if self.policy.source == "running":
            decay = self.policy.decay
            self.running[neighbour] = cross / (1 - decay) if decay < 1 else cross
