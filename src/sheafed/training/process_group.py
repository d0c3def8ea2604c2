"""The processes that train together: often one, or those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import networkx as nx

from sheafed.evaluation.evaluation import Evaluation, Split, evaluate
from sheafed.methods.node import Node
from sheafed.transport import Ledger, LocalTransport, Transport


class ProcessGroup(Protocol):
    """What the round loop needs to know of other processes. All of them call the same methods."""

    @property
    def rank(self) -> int:
        """The number of this process; 0 writes the files that all share."""

    @property
    def alone(self) -> bool:
        """Whether all agents are sure to live in this process."""

    def gather(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank; values are what JSON can say, and small.

        Nobody returns before everybody has called it.
        """

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        """Return what carries messages between the agents of a graph, given their ranks."""

    def ledger(self, transport: Transport) -> Ledger:
        """Return the ledger of the whole group."""

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Add what everybody has sent since the last time to that ledger."""

    def evaluate(self, nodes: Mapping[str, Node], split: Split, oracle: bool) -> Evaluation:
        """Evaluate all agents of the group on each other's data."""


class SingleProcess:
    """One process with all agents."""

    rank, alone = 0, True

    def gather(self, value: Any) -> list[Any]:
        """Return the one value."""
        return [value]

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        """Return an exchange in memory."""
        return LocalTransport(list(placement))

    def ledger(self, transport: Transport) -> Ledger:
        """Return that of the exchange."""
        return transport.ledger

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Do nothing: the ledger has counted."""

    def evaluate(self, nodes: Mapping[str, Node], split: Split, oracle: bool) -> Evaluation:
        """Evaluate without messages."""
        return evaluate(nodes, split, oracle)
