"""Training by several processes, each of which hosts a share of the agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import networkx as nx

from sheafed.errors import ClusterError, InputError
from sheafed.transport import GlooGroup, GlooTransport, Ledger, Transport
from sheafed.transport.cluster_timeouts import TIMEOUT


class Cluster:
    """This process among those that torchrun has started; leave it with `close` or `with`.

    Args:
        timeout: seconds to wait for another rank, once training has begun, before it ends with
            an error.
        ranks: the processes, if they are not those of torchrun.
    """

    single = False

    def __init__(self, timeout: float = TIMEOUT, ranks: GlooGroup | None = None) -> None:
        if not timeout > 0:
            raise InputError(f"timeout must be positive, in seconds, got {timeout}")
        self._ranks = ranks or GlooGroup.join()
        self._timeout = timeout

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
    def placement(self) -> dict[str, int]:
        """The rank of each agent, once that is known."""
        return self._ranks.placement

    def describe(self) -> list[str]:
        """Return the agents of each rank, a line for each."""
        return [self._ranks.describe(rank) for rank in range(self.size)]

    def place(self, costs: Mapping[str, float] | None) -> list[str]:
        """Return the agents of this rank; rank 0 gives the cost of each, and balances them."""
        decided = self.gather(None if costs is None else balance(costs, self.size))[0]
        if decided is None:
            raise InputError("rank 0 must give the costs of the agents, the other ranks None")
        self._ranks.placement = decided
        return [name for name, rank in decided.items() if rank == self.rank]

    def gather(self, value: Any) -> list[Any]:
        data = json.dumps(value).encode()
        received = self._ranks.swap(dict.fromkeys(self._ranks.others, data))
        return [json.loads(received.get(rank, data)) for rank in range(self.size)]

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        """Return a transport in which only neighbours' messages cross from rank to rank."""
        self._ranks.placement = dict(placement)
        self._ranks.timeout = self._timeout
        return GlooTransport(self._ranks, self._ranks.placement, list(graph.edges))

    def ledger(self, transport: Transport) -> Ledger:
        """Return a ledger for the messages of all ranks."""
        return Ledger()

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Add what all ranks have sent, in the order in which one process would have sent it."""
        if not isinstance(transport, GlooTransport):
            raise ClusterError(
                f"ranks cannot exchange messages by a {type(transport).__name__}; leave the "
                "transport to the cluster"
            )
        for phase in zip_longest(*self.gather(transport.new_rows()), fillvalue=()):
            rows = [row for part in phase for row in part]
            for row in sorted(rows, key=lambda row: row[1]):  # by sender
                ledger.record(*row)

    def close(self) -> None:
        """Leave the group; again is fine."""
        self._ranks.close()


def balance(costs: Mapping[str, float], ranks: int) -> dict[str, int]:
    """Give every agent a rank: the costliest first, each to the rank that has least to do."""
    loads = [0.0] * ranks
    placement = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        placement[name] = loads.index(min(loads))
        loads[placement[name]] += costs[name]
    return {name: placement[name] for name in sorted(placement)}
