"""Nodes whose neighbours may change after training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from sheafed.methods.handshake import check_hello
from sheafed.methods.node import Node
from sheafed.transport.message import Message


class DynamicNode(Node):
    """A node to which a neighbour can be added, and from which one can be removed.

    Nothing of the other edges changes. A newcomer whitens by the pilots and both endpoints of its
    edges are fitted on all of them (`fit_whitening`, `fit_endpoint`). It may then train on while
    its neighbours only answer and refit the maps of the new edges (`serve`, `refit`).
    """

    neighbours_may_change: bool = False
    """Whether the method, with the options given, supports it."""

    def add_neighbour(self, neighbour: str, hello: Message) -> None:
        self.peers[neighbour] = check_hello(self, hello)
        self.neighbours = tuple(sorted({*self.neighbours, neighbour}))
        self.prepare_edge(neighbour)

    def remove_neighbour(self, neighbour: str) -> None:
        self.neighbours = tuple(j for j in self.neighbours if j != neighbour)
        del self.peers[neighbour], self.endpoints[neighbour]

    @torch.no_grad()
    def fit_whitening(self) -> None:
        """Fit the whitening to the pilots alone: the agent has not trained with the others."""
        self.whitening.fit(self.pilot_latents())

    def fit_endpoint(self, neighbour: str, own: Tensor, received: Tensor) -> None:
        """Fit the endpoint of an edge to own white latents of all pilots and those received."""
        endpoint = self.endpoints[neighbour]
        endpoint.fit(endpoint.cross(own, received), 0)

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        """Return what `send` would, for one neighbour that trains while this agent does not."""
        return iter(())

    def refit(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Refit the maps of the edges to these neighbours, and change nothing else."""
