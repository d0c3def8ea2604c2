"""The exchange inside one process: the reference for all others."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from sheafed.errors import InputError, TransportClosedError, UnknownAgentError
from sheafed.transport.base import Mailbox
from sheafed.transport.codec import encode
from sheafed.transport.ledger import Ledger
from sheafed.transport.message import Message


class LocalTransport:
    """Delivers at once, but only bytes: every message is encoded, and decoded by its receiver.

    Args:
        names: the agents of the network.
        ledger: one to go on with, e.g. from a checkpoint; a new one by default.
        tap: sees the bytes of every message sent, as an eavesdropper on the wire does.
        drop: says which messages get lost on their way, for tests with faults; their sender
            has sent them, so the ledger counts them.
    """

    def __init__(
        self,
        names: Collection[str],
        *,
        ledger: Ledger | None = None,
        tap: Callable[[bytes], None] | None = None,
        drop: Callable[[Message], bool] | None = None,
    ) -> None:
        if len(set(names)) != len(names):
            raise InputError(f"names must differ from each other, got {sorted(names)}; rename some")
        everybody = frozenset(names)
        self._boxes = {name: Mailbox(name, everybody) for name in names}
        self._ledger = Ledger() if ledger is None else ledger
        self._tap = tap
        self._drop = drop
        self._closed = False

    @property
    def ledger(self) -> Ledger:
        """The encoded bytes of every message sent."""
        return self._ledger

    @property
    def rejected(self) -> Counter[str]:
        """How many messages were dropped, by reason, over all agents."""
        return sum((box.rejected for box in self._boxes.values()), Counter())

    def send(self, messages: Iterable[Message]) -> None:
        """Encode, record and deliver the messages, in this order."""
        self._check_open()
        for message in messages:
            self._check_known(message.sender, message.receiver)
            encoded = encode(message)
            self._ledger.count(message, encoded)
            if self._tap is not None:
                self._tap(encoded.data)
            if self._drop is None or not self._drop(message):
                self.deliver(message.receiver, encoded.data)

    def barrier(self, round: int, kind: str) -> None:
        """Do nothing: what was sent is there."""

    def deliver(self, receiver: str, data: bytes) -> None:
        """Hand over bytes as they come off the wire: they may be anything, from anybody."""
        self._check_open()
        self._check_known(receiver)
        self._boxes[receiver].put(data)

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        """Return what has come for `receiver` in this round, by sender, sorted by name."""
        self._check_open()
        self._check_known(receiver, *senders)
        return self._boxes[receiver].take(round, kind, senders)

    def close(self) -> None:
        """Forget everything unread; again is fine."""
        self._closed = True
        for box in self._boxes.values():
            box.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise TransportClosedError("this exchange is closed; make a new one to go on")

    def _check_known(self, *names: str) -> None:
        for name in names:
            if name not in self._boxes:
                raise UnknownAgentError(
                    f"{name!r} is not in this exchange; expected one of {sorted(self._boxes)}"
                )
