"""The transport between the processes of a cluster, each of which hosts some of the agents.

Agents on one rank exchange messages in memory, like `LocalTransport`. Messages to other ranks are
collected until the `barrier` of their round and kind. There every rank swaps one frame with each
rank that hosts a neighbour of one of its agents, an empty one if there are no messages, so that
every rank knows for which frames to wait.

    length of the JSON, 4 bytes | JSON | the messages

The JSON is `[round, kind, [[receiver, length], ...]]`, with one entry per message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from sheafed.errors import ClusterError, InputError
from sheafed.transport.gloo_group import GlooGroup
from sheafed.transport.ledger import Row
from sheafed.transport.local import LocalTransport
from sheafed.transport.message import Message

_LENGTH = struct.Struct("<I")


class GlooTransport(LocalTransport):
    """Delivers at once on the same rank, and at the next barrier to other ranks.

    Args:
        group: the processes.
        placement: the rank of every agent of the network.
        edges: pairs of neighbours; messages cross ranks between neighbours only.
    """

    def __init__(
        self, group: GlooGroup, placement: Mapping[str, int], edges: Iterable[tuple[str, str]]
    ) -> None:
        super().__init__(list(placement))
        self._group = group
        self._placement = dict(placement)
        links = {(placement[a], placement[b]) for edge in edges for a, b in (edge, edge[::-1])}
        self._outgoing: dict[int, list[tuple[str, bytes]]] = {
            there: [] for here, there in sorted(links) if here == group.rank != there
        }
        self._barriers = [0]  # the length of the ledger at each barrier

    def send(self, messages: Iterable[Message]) -> None:
        """Record and deliver messages of agents of this rank, in this order."""
        super().send(self._checked(messages))

    def is_here(self, agent: str) -> bool:
        return self._placement[agent] == self._group.rank

    def deliver(self, receiver: str, data: bytes) -> None:
        """Put bytes into the mailbox of an agent, on another rank at the next barrier."""
        self._check_open()
        self._check_known(receiver)
        rank = self._placement[receiver]
        if rank == self._group.rank:
            super().deliver(receiver, data)
        elif rank in self._outgoing:
            self._outgoing[rank].append((receiver, data))
        else:
            raise InputError(
                f"{self._group.describe(self._group.rank)} has no neighbour on rank {rank}, the "
                f"rank of {receiver!r}; send to neighbours only"
            )

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        self._check_local(receiver)
        return super().receive(receiver, round, kind, senders)

    def barrier(self, round: int, kind: str) -> None:
        """Swap a frame with every rank that hosts a neighbour, and deliver its messages."""
        self._check_open()
        self._barriers.append(len(self.ledger))
        frames = {rank: _frame(round, kind, messages) for rank, messages in self._outgoing.items()}
        for messages in self._outgoing.values():
            messages.clear()
        for rank, frame in self._group.swap(frames).items():
            for receiver, data in _read(frame, round, kind, self._group.describe(rank)):
                self.deliver(receiver, data)

    def new_rows(self) -> list[list[Row]]:
        """Return what the ledger has counted since the last call, a list per barrier."""
        rows = [list(self.ledger.rows(*ends)) for ends in pairwise(self._barriers)]
        self._barriers = self._barriers[-1:]
        return rows

    def _checked(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            self._check_local(message.sender)
            yield message

    def _check_local(self, name: str) -> None:
        self._check_known(name)
        if self._placement[name] != self._group.rank:
            raise InputError(
                f"{name!r} is on rank {self._placement[name]}, this is rank {self._group.rank}; "
                "an agent sends and receives on its own rank"
            )


def _frame(round: int, kind: str, messages: list[tuple[str, bytes]]) -> bytes:
    contents = [[receiver, len(data)] for receiver, data in messages]
    header = json.dumps([round, kind, contents]).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *(data for _, data in messages)])


def _read(frame: bytes, round: int, kind: str, peer: str) -> Iterator[tuple[str, bytes]]:
    (length,) = _LENGTH.unpack_from(frame)
    at = _LENGTH.size + length
    their_round, their_kind, contents = json.loads(frame[_LENGTH.size : at])
    if (their_round, their_kind) != (round, kind):
        raise ClusterError(
            f"{peer} is in round {their_round} ({their_kind!r}), this rank in round {round} "
            f"({kind!r}); run the same release with the same config on all ranks"
        )
    for receiver, size in contents:
        yield receiver, frame[at : at + size]
        at += size
