"""Training by several processes, each of which hosts a share of the agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import networkx as nx

from sheafed.errors import ClusterError, InputError
from sheafed.evaluation.evaluation import Evaluation, Split
from sheafed.evaluation.survey import merge, survey
from sheafed.methods.node import Node
from sheafed.transport import GlooGroup, GlooTransport, Ledger, Transport

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

    def __init__(self, timeout: float = TIMEOUT, ranks: GlooGroup | None = None) -> None:
        if not timeout > 0:
            raise InputError(f"timeout must be positive, in seconds, got {timeout}")
        self._ranks = ranks or GlooGroup.join()
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
    def placement(self) -> dict[str, int]:
        """The rank of each agent, once that is known."""
        return self._ranks.placement

    def describe(self) -> list[str]:
        """Return who lives where, a line for each rank, for people."""
        return [self._ranks.describe(rank) for rank in range(self.size)]

    def place(self, costs: Mapping[str, float] | None) -> list[str]:
        """Return the agents that live here: rank 0 says what each costs, and all follow."""
        decided = self.gather(None if costs is None else balance(costs, self.size))[0]
        if decided is None:
            raise InputError("rank 0 must say what the agents cost; give it the costs, others None")
        self._ranks.placement = decided
        return [name for name, home in decided.items() if home == self.rank]

    def gather(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank."""
        data = json.dumps(value).encode()
        received = self._ranks.swap(dict.fromkeys(self._ranks.others, data))
        return [json.loads(received.get(rank, data)) for rank in range(self.size)]

    def transport(self, placement: Mapping[str, int], graph: nx.Graph[str]) -> Transport:
        """Return an exchange in which only neighbours' messages cross from rank to rank."""
        self._ranks.placement, self._edges = dict(placement), list(graph.edges)
        self._ranks.timeout = self._timeout
        return self._exchange()

    def ledger(self, transport: Transport) -> Ledger:
        """Return a ledger for the messages of all ranks."""
        return Ledger()

    def count(self, transport: Transport, ledger: Ledger) -> None:
        """Add what everybody has sent, in the order in which one process would have sent it."""
        if not isinstance(transport, GlooTransport):
            raise ClusterError(
                f"ranks cannot exchange messages by a {type(transport).__name__}; leave the "
                "exchange to the cluster"
            )
        for phase in zip_longest(*self.gather(transport.new_rows()), fillvalue=()):
            rows = [row for part in phase for row in part]
            for row in sorted(rows, key=lambda row: row[1]):  # by sender
                ledger.record(*row)

    def evaluate(self, nodes: Mapping[str, Node], split: Split, oracle: bool) -> Evaluation:
        """Evaluate by messages; they are no part of training and enter no ledger.

        There are no ceilings: `train` refuses to be asked for them.
        """
        return merge(self.gather(survey(nodes, self._exchange(), split)))

    def close(self) -> None:
        """Leave the group; again is fine."""
        self._ranks.close()

    def _exchange(self) -> GlooTransport:
        return GlooTransport(self._ranks, self._ranks.placement, self._edges)


def balance(costs: Mapping[str, float], ranks: int) -> dict[str, int]:
    """Give every agent a rank: the costliest first, each to the rank that has least to do."""
    loads = [0.0] * ranks
    placement = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        placement[name] = loads.index(min(loads))
        loads[placement[name]] += costs[name]
    return {name: placement[name] for name in sorted(placement)}
