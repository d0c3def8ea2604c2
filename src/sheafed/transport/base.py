"""What every exchange is, and the mailbox in which every exchange keeps what has arrived."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Protocol

from sheafed.errors import InputError, MessageError
from sheafed.transport.codec import MAX_BYTES, decode
from sheafed.transport.ledger import Ledger
from sheafed.transport.message import Message

logger = logging.getLogger("sheafed.transport")


class Transport(Protocol):
    """Carries messages between agents; knows nothing of learning."""

    @property
    def ledger(self) -> Ledger:
        """The encoded bytes of every message sent from here."""

    @property
    def rejected(self) -> Counter[str]:
        """How many messages were dropped here, by reason."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send the messages on their way without waiting for their receivers."""

    def barrier(self, round: int, kind: str) -> None:
        """Say that all agents here have sent what they have of this round and kind.

        The round loop calls it between sending and receiving. An exchange that can know when
        everything has come waits here until it has; others do nothing.
        """

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        """Return what has come for `receiver` in this round, by sender, sorted by name.

        Absent messages are absent. Every message is returned once, and a receiver's rounds never
        go back. Bad messages are dropped, counted in `rejected` and logged, see `Mailbox`.
        """

    def close(self) -> None:
        """Release everything; again is fine. The ledger and `rejected` stay readable."""


class Mailbox:
    """The messages that have arrived for one agent and have not been read. Thread-safe.

    A message is dropped, and counted in `rejected`, for one of these reasons:

    - any of `decode`: these bytes are not a message;
    - "receiver", "sender": it is for somebody else, or not from who may have sent it;
    - "late": its round was over, for longer than `staleness` rounds, before it was read;
    - "duplicate": there was one of this round, kind and sender before, and that one counts;
    - "overflow": its sender has more than `capacity` unread ones, and it is the oldest.

    The first drop for each reason is logged as a warning, those that follow for debugging only:
    a peer must not be able to fill the disk.
    """

    def __init__(
        self,
        owner: str,
        names: Collection[str],
        capacity: int = 64,
        limit: int = MAX_BYTES,
        staleness: int = 0,
    ) -> None:
        self.rejected: Counter[str] = Counter()
        self._owner = owner
        self._capacity = capacity
        self._limit = limit
        self._staleness = staleness
        self._round = 0
        self._read: set[tuple[int, str, str]] = set()  # (round, sender, kind), none of them late
        self._names = names if isinstance(names, frozenset) else frozenset(names)
        # Only of those who have written: a box for everybody in every box would be N² of them.
        self._unread: dict[str, dict[tuple[int, str], Message]] = {}
        self._lock = Lock()

    def put(self, data: bytes, sender: str | None = None) -> None:
        """Keep the message of which these are the bytes, or drop it; never raises.

        Args:
            data: as they came off the wire.
            sender: who has proved to be their sender, where the exchange knows.
        """
        with self._lock:
            try:
                self._keep(decode(data, self._limit), sender)
            except MessageError as problem:
                self._reject(problem)

    def reject(self, problem: MessageError) -> None:
        """Count and log a message that was dropped before it came here."""
        with self._lock:
            self._reject(problem)

    def take(self, round: int, kind: str, senders: Collection[str]) -> dict[str, Message]:
        """Remove and return the unread messages of that round, kind and those known senders."""
        with self._lock:
            if round < self._round:
                raise InputError(
                    f"{self._owner} has received in round {self._round} and asks for round {round} "
                    "now; rounds only go forward, resume with a new exchange"
                )
            if round > self._round:
                self._begin(round)
            taken = {
                sender: self._unread[sender].pop((round, kind))
                for sender in sorted(set(senders))
                if (round, kind) in self._unread.get(sender, ())
            }
            self._read.update((round, sender, kind) for sender in taken)
            return taken

    def take_stale(self, kind: str, senders: Collection[str]) -> dict[str, Message]:
        """Remove and return the newest unread message before the current round of those senders."""
        with self._lock:
            taken = {}
            for sender in sorted(set(senders)):
                unread = self._unread.get(sender, {})
                old = sorted(key for key in unread if key[0] < self._round and key[1] == kind)
                for key in old:
                    taken[sender] = unread.pop(key)
                    self._read.add((key[0], sender, kind))
            return taken

    def clear(self) -> None:
        """Forget everything unread."""
        with self._lock:
            for unread in self._unread.values():
                unread.clear()

    def _keep(self, message: Message, sender: str | None) -> None:
        if message.receiver != self._owner:
            raise MessageError("receiver", f"{message} came to {self._owner!r}; check its sender")
        if message.sender not in self._names:
            raise MessageError("sender", f"{message}: its sender is not one of the network")
        if sender not in (None, message.sender):
            raise MessageError("sender", f"{message} came from {sender!r}, who may not say so")
        if message.round < self._round - self._staleness:
            raise _late(message, self._round)
        unread = self._unread.setdefault(message.sender, {})
        key = (message.round, message.kind)
        if key in unread or (message.round, message.sender, message.kind) in self._read:
            raise MessageError("duplicate", f"{message} came before; the first one counts")
        unread[key] = message
        if len(unread) > self._capacity:
            oldest = unread.pop(min(unread))
            raise MessageError(
                "overflow",
                f"{oldest} makes room, its sender has more than {self._capacity} unread ones; "
                "receive more often",
            )

    def _begin(self, round: int) -> None:
        oldest = round - self._staleness
        for unread in self._unread.values():
            for key in [key for key in unread if key[0] < oldest]:
                self._reject(_late(unread.pop(key), round))
        self._read = {read for read in self._read if read[0] >= oldest}
        self._round = round

    def _reject(self, problem: MessageError) -> None:
        level = logging.DEBUG if self.rejected[problem.reason] else logging.WARNING
        self.rejected[problem.reason] += 1
        logger.log(level, "%s dropped a message (%s): %s", self._owner, problem.reason, problem)


def _late(message: Message, now: int) -> MessageError:
    return MessageError(
        "late", f"{message} was not read before round {now}; wait longer if this is frequent"
    )
