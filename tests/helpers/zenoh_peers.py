"""The Zenoh transports of several agents in one process, over loopback with mutual TLS."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sheafed.errors import UnknownAgentError
from sheafed.network.launcher import free_endpoints
from sheafed.transport import Ledger, Message
from sheafed.transport.zenoh import ZenohTransport, credentials_in
from sheafed.transport.zenoh.transport import MESSAGES
from tests.helpers.messages import message, same_message


def free_endpoint() -> str:
    return free_endpoints(1)[0]


def await_that(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {seconds} s"
        time.sleep(0.002)


def connected(
    certificates: Path,
    names: Collection[str],
    edges: Sequence[tuple[str, str]] | None = None,
    endpoints: dict[str, str] | None = None,
    **options: Any,
) -> dict[str, ZenohTransport]:
    """Open one transport per name, all linked unless edges are given, and wait for the links."""
    ordered = sorted(names)
    pairs = edges or [(i, j) for i in ordered for j in ordered if i < j]
    endpoints = endpoints or {name: free_endpoint() for name in ordered}
    peers = {}
    for name in ordered:
        neighbours = sorted({i if j == name else j for i, j in pairs if name in (i, j)})
        peers[name] = ZenohTransport(
            name,
            neighbours,
            credentials=credentials_in(certificates, name),
            listen=[endpoints[name]],
            connect=[endpoints[j] for j in neighbours if j < name],
            **options,
        )
    await_that(lambda: all(p.present == set(p.neighbours) for p in peers.values()))
    return peers


def delivers(peers: dict[str, ZenohTransport], sender: str, receiver: str, round: int = 0) -> bool:
    """Send a message over the link, wait for it, and compare."""
    sent, received = message(round, sender, receiver, seed=round), {}
    peers[sender].send([sent])

    def arrived() -> bool:
        received.update(peers[receiver].receive(receiver, round, "latents", [sender]))
        return bool(received)

    await_that(arrived)
    return same_message(received[sender], sent)


class CombinedPeers:
    """The transports of several agents as one, for the contract."""

    def __init__(self, peers: dict[str, ZenohTransport], ledger: Ledger) -> None:
        self.peers, self.ledger, self.sent = peers, ledger, 0

    @property
    def rejected(self) -> Counter[str]:
        return sum((peer.rejected for peer in self.peers.values()), Counter())

    def send(self, messages: Iterable[Message]) -> None:
        for one in messages:
            self._peer(one.sender).send([one])
            self.sent += 1

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        return self._peer(receiver).receive(receiver, round, kind, senders)

    def inject(self, receiver: str, data: bytes) -> None:
        """Publish bytes under a neighbour's own name, as its certificate allows."""
        sender = next(name for name in self.peers if name != receiver)
        self.peers[sender]._outbox.post(
            receiver, f"sheafed/default/{sender}/{receiver}/{MESSAGES}", data
        )
        self.sent += 1

    def barrier(self, round: int, kind: str) -> None:
        await_that(lambda: sum(peer.arrivals.total() for peer in self.peers.values()) == self.sent)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()

    def _peer(self, name: str) -> ZenohTransport:
        if name not in self.peers:
            raise UnknownAgentError(
                f"unknown agent {name!r}; this transport has {sorted(self.peers)}"
            )
        return self.peers[name]
