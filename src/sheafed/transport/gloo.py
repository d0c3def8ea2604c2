"""The exchange between the processes of a cluster, each of which hosts some of the agents.

Agents on one rank exchange in memory, as `LocalTransport` has it. Messages to other ranks are
collected until the round loop says that a phase is over (`settle`). Then every rank swaps one
frame with each rank that hosts a neighbour of one of its agents, also if it has nothing to say:
so everybody knows whom to wait for, and for how long.

    length of the JSON, 4 bytes | JSON | the messages

The JSON is `[round, kind, [[receiver, length], ...]]`, with an entry for each message.
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
    """Delivers to agents elsewhere when a phase is over, to those here at once.

    Args:
        ranks: the processes.
        homes: the rank of every agent of the network.
        edges: who is whose neighbour; nobody else is sent to.
    """

    def __init__(
        self, ranks: GlooGroup, placement: Mapping[str, int], edges: Iterable[tuple[str, str]]
    ) -> None:
        super().__init__(list(placement))
        self._ranks = ranks
        self._homes = dict(placement)
        links = {(placement[a], placement[b]) for edge in edges for a, b in (edge, edge[::-1])}
        self._outgoing: dict[int, list[tuple[str, bytes]]] = {
            there: [] for here, there in sorted(links) if here == ranks.rank != there
        }
        self._phases = [0]  # the length of the ledger when each phase was over

    def send(self, messages: Iterable[Message]) -> None:
        """Encode, record and deliver the messages of agents that live here, in this order."""
        super().send(self._from_here(messages))

    def deliver(self, receiver: str, data: bytes) -> None:
        """Hand over bytes, to an agent elsewhere when the phase is over."""
        self._check_open()
        self._check_known(receiver)
        home = self._homes[receiver]
        if home == self._ranks.rank:
            super().deliver(receiver, data)
        elif home in self._outgoing:
            self._outgoing[home].append((receiver, data))
        else:
            raise InputError(
                f"{self._ranks.describe(self._ranks.rank)} has no neighbour on rank {home}, where "
                f"{receiver!r} lives; send to neighbours only"
            )

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        """Return what has come for an agent that lives here, by sender, sorted by name."""
        self._check_here(receiver)
        return super().receive(receiver, round, kind, senders)

    def barrier(self, round: int, kind: str) -> None:
        """Swap a frame with every rank that hosts a neighbour, and deliver what comes."""
        self._check_open()
        self._phases.append(len(self.ledger))
        frames = {rank: _frame(round, kind, messages) for rank, messages in self._outgoing.items()}
        for messages in self._outgoing.values():
            messages.clear()
        for rank, frame in self._ranks.swap(frames).items():
            for receiver, data in _read(frame, round, kind, self._ranks.describe(rank)):
                self.deliver(receiver, data)

    def new_rows(self) -> list[list[Row]]:
        """Return what the ledger has counted since the last call, a list for each phase."""
        phases = [list(self.ledger.rows(*ends)) for ends in pairwise(self._phases)]
        self._phases = self._phases[-1:]
        return phases

    def _from_here(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            self._check_here(message.sender)
            yield message

    def _check_here(self, name: str) -> None:
        self._check_known(name)
        if self._homes[name] != self._ranks.rank:
            raise InputError(
                f"{name!r} lives on rank {self._homes[name]}, this is rank {self._ranks.rank}; "
                "an agent sends and receives at home"
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
            f"({kind!r}); run the same release with the same config everywhere"
        )
    for receiver, size in contents:
        yield receiver, frame[at : at + size]
        at += size
