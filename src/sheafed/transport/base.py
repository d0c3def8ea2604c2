"""What a method may expect of a transport, whatever carries the bytes."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol

from sheafed.transport.ledger import Ledger
from sheafed.transport.message import Message


class Transport(Protocol):
    """Carries messages between agents; knows nothing of learning."""

    @property
    def ledger(self) -> Ledger:
        """The encoded bytes of every message sent by the agents of this process."""

    @property
    def rejected(self) -> Counter[str]:
        """How many messages were dropped in this process, by reason."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages without waiting for their receivers."""

    def barrier(self, round: int, kind: str) -> None:
        """Mark that all agents of this process have sent their messages of this round and kind.

        Called between sending and receiving. A transport that can know when all messages have
        arrived blocks until they have; others return at once.
        """

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        """Return the messages that have arrived for `receiver`, by sender, sorted by name.

        Missing messages are absent from the result. Every message is returned once, and the
        rounds of a receiver never decrease. Invalid messages are dropped, counted in `rejected`
        and logged, see `Mailbox`.
        """

    def close(self) -> None:
        """Release all resources; may be repeated. `ledger` and `rejected` stay readable."""
