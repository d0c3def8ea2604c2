"""The processes that train together: often one, or those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import networkx as nx

from sheafed.exchange import Exchange, Ledger, LocalExchange
from sheafed.methods.node import Node
from sheafed.runtime.evaluation import Evaluation, Split, evaluate


class Group(Protocol):
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

    def exchange(self, homes: Mapping[str, int], graph: nx.Graph[str]) -> Exchange:
        """Return what carries messages between the agents of a graph, given their ranks."""

    def ledger(self, exchange: Exchange) -> Ledger:
        """Return the ledger of the whole group."""

    def count(self, exchange: Exchange, ledger: Ledger) -> None:
        """Add what everybody has sent since the last time to that ledger."""

    def evaluate(self, nodes: Mapping[str, Node], split: Split, ceiling: bool) -> Evaluation:
        """Evaluate all agents of the group on each other's data."""


class Alone:
    """One process with all agents."""

    rank, alone = 0, True

    def gather(self, value: Any) -> list[Any]:
        """Return the one value."""
        return [value]

    def exchange(self, homes: Mapping[str, int], graph: nx.Graph[str]) -> Exchange:
        """Return an exchange in memory."""
        return LocalExchange(list(homes))

    def ledger(self, exchange: Exchange) -> Ledger:
        """Return that of the exchange."""
        return exchange.ledger

    def count(self, exchange: Exchange, ledger: Ledger) -> None:
        """Do nothing: the ledger has counted."""

    def evaluate(self, nodes: Mapping[str, Node], split: Split, ceiling: bool) -> Evaluation:
        """Evaluate without messages."""
        return evaluate(nodes, split, ceiling)
