"""Training by several processes, each of which hosts a share of the agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import networkx as nx

from sheafed.errors import ClusterError, InputError
from sheafed.exchange import DistributedExchange, Exchange, Ledger, Ranks
from sheafed.methods.node import Node
from sheafed.runtime.evaluation import Evaluation, Split
from sheafed.runtime.survey import merge, survey

TIMEOUT = 300.0
"""Seconds. A killed rank is noticed at once; this is for one that is frozen or cut off, and must
be longer than any rank may be behind the others, e.g. in an evaluation."""


class Cluster:
    """This process among those that torchrun has started; leave it with `close` or `with`.

    Args:
        timeout: seconds to wait for another rank, once training has begun, before it ends with
            an error.
        ranks: the processes, if they are not those of torchrun.
    """

    alone = False

    def __init__(self, timeout: float = TIMEOUT, ranks: Ranks | None = None) -> None:
        if not timeout > 0:
            raise InputError(f"timeout must be positive, in seconds, got {timeout}")
        self._ranks = ranks or Ranks.join()
        self._timeout = timeout
        self._edges: list[tuple[str, str]] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self._ranks.size

    @property
    def homes(self) -> dict[str, int]:
        """The rank of each agent, once that is known."""
        return self._ranks.homes

    def describe(self) -> list[str]:
        """Return who lives where, a line for each rank, for people."""
        return [self._ranks.describe(rank) for rank in range(self.size)]

    def place(self, costs: Mapping[str, float] | None) -> list[str]:
        """Return the agents that live here: rank 0 says what each costs, and all follow."""
        decided = self.gather(None if costs is None else balance(costs, self.size))[0]
        if decided is None:
            raise InputError("rank 0 must say what the agents cost; give it the costs, others None")
        self._ranks.homes = decided
        return [name for name, home in decided.items() if home == self.rank]

    def gather(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank."""
        data = json.dumps(value).encode()
        received = self._ranks.swap(dict.fromkeys(self._ranks.others, data))
        return [json.loads(received.get(rank, data)) for rank in range(self.size)]

    def exchange(self, homes: Mapping[str, int], graph: nx.Graph[str]) -> Exchange:
        """Return an exchange in which only neighbours' messages cross from rank to rank."""
        self._ranks.homes, self._edges = dict(homes), list(graph.edges)
        self._ranks.timeout = self._timeout
        return self._exchange()

    def ledger(self, exchange: Exchange) -> Ledger:
        """Return a ledger for the messages of all ranks."""
        return Ledger()

    def count(self, exchange: Exchange, ledger: Ledger) -> None:
        """Add what everybody has sent, in the order in which one process would have sent it."""
        if not isinstance(exchange, DistributedExchange):
            raise ClusterError(
                f"ranks cannot exchange messages by a {type(exchange).__name__}; leave the "
                "exchange to the cluster"
            )
        for phase in zip_longest(*self.gather(exchange.new_rows()), fillvalue=()):
            rows = [row for part in phase for row in part]
            for row in sorted(rows, key=lambda row: row[1]):  # by sender
                ledger.record(*row)

    def evaluate(self, nodes: Mapping[str, Node], split: Split, ceiling: bool) -> Evaluation:
        """Evaluate by messages; they are no part of training and enter no ledger.

        There are no ceilings: `train` refuses to be asked for them.
        """
        return merge(self.gather(survey(nodes, self._exchange(), split)))

    def close(self) -> None:
        """Leave the group; again is fine."""
        self._ranks.close()

    def _exchange(self) -> DistributedExchange:
        return DistributedExchange(self._ranks, self._ranks.homes, self._edges)


def balance(costs: Mapping[str, float], ranks: int) -> dict[str, int]:
    """Give every agent a rank: the costliest first, each to the rank that has least to do."""
    loads = [0.0] * ranks
    homes = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        homes[name] = loads.index(min(loads))
        loads[homes[name]] += costs[name]
    return {name: homes[name] for name in sorted(homes)}
