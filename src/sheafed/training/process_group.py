"""The processes that train together: often one, or those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import networkx as nx

from sheafed.transport import Ledger, LocalTransport, Transport


class ProcessGroup(Protocol):
    """What training needs to know of other processes. All of them call the same methods."""

    @property
    def rank(self) -> int:
        """The number of this process; 0 writes the files that all share."""

    @property
    def single(self) -> bool:
        """Whether all agents are in this process."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank; values are JSON, and small.

        No process returns before all have called it.
        """

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        """Return a new transport between the agents of a graph, given their ranks."""

    def ledger(self, transport: Transport) -> Ledger:
        """Return the ledger of the whole group."""

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Add what all processes have sent since the last call to that ledger."""


class SingleProcess:
    """One process with all agents."""

    rank, single = 0, True

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        return LocalTransport(list(placement))

    def ledger(self, transport: Transport) -> Ledger:
        return transport.ledger

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Do nothing: the transport's ledger has counted."""
