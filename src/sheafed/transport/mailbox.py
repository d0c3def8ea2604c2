"""Where every transport keeps what has arrived until it is read."""

import logging
from collections import Counter
from collections.abc import Collection
from threading import Lock

from sheafed.errors import InputError, MessageError
from sheafed.transport.codec import MAX_BYTES, decode
from sheafed.transport.message import Message

logger = logging.getLogger("sheafed.transport")


class Mailbox:
    """The unread messages of one agent. Thread-safe.

    A message is dropped, and counted in `rejected`, for one of these reasons:

    - any of `decode`: the bytes are not a message;
    - "receiver", "sender": it is addressed to another agent, or its sender is not allowed;
    - "late": it was not read within `staleness` rounds after its own;
    - "duplicate": a message of this round, kind and sender came before; the first one counts;
    - "overflow": its sender has more than `capacity` unread messages, and it is the oldest.

    The first drop for each reason is logged as a warning, later ones at debug level: a peer must
    not be able to fill the disk.

    Args:
        owner: the agent that reads the messages.
        senders: the agents that may have sent them.
        capacity: unread messages per sender.
        limit: bytes of the largest message.
        staleness: rounds for which a late message is kept for `take_stale`.
    """

    def __init__(
        self,
        owner: str,
        senders: Collection[str],
        capacity: int = 64,
        limit: int = MAX_BYTES,
        staleness: int = 0,
    ) -> None:
        self.rejected: Counter[str] = Counter()
        self._owner = owner
        self._senders = senders if isinstance(senders, frozenset) else frozenset(senders)
        self._capacity = capacity
        self._limit = limit
        self._staleness = staleness
        self._round = 0
        self._read: set[tuple[int, str, str]] = set()  # (round, sender, kind), none of them late
        # By sender, once it has sent something: a queue for each possible one would be N² of them.
        self._unread: dict[str, dict[tuple[int, str], Message]] = {}
        self._lock = Lock()

    def put(self, data: bytes, sender: str | None = None) -> None:
        """Keep the message with this encoding, or drop it; never raises.

        Args:
            data: the bytes as they arrived.
            sender: the agent that is known to have sent them, if the transport knows it.
        """
        with self._lock:
            try:
                self._keep(decode(data, self._limit), sender)
            except MessageError as problem:
                self._reject(problem)

    def put_message(self, message: Message) -> None:
        """Keep a message that nobody else holds, e.g. of `hand_over`, or drop it; never raises."""
        with self._lock:
            try:
                self._keep(message, None)
            except MessageError as problem:
                self._reject(problem)

    def reject(self, problem: MessageError) -> None:
        """Count and log a message that the transport has dropped itself."""
        with self._lock:
            self._reject(problem)

    def take(self, round: int, kind: str, senders: Collection[str]) -> dict[str, Message]:
        """Remove and return the unread messages of a round, kind and senders, sorted by sender."""
        with self._lock:
            if round < self._round:
                raise InputError(
                    f"{self._owner} has received messages of round {self._round}, got a request "
                    f"for round {round}; rounds cannot decrease, resume with a new transport"
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
        """Remove the unread messages of earlier rounds; return the newest of each sender."""
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
        with self._lock:
            for unread in self._unread.values():
                unread.clear()

    def _keep(self, message: Message, sender: str | None) -> None:
        if message.receiver != self._owner:
            raise MessageError(
                "receiver", f"{message} arrived at {self._owner!r}; check its sender"
            )
        if message.sender not in self._senders:
            raise MessageError("sender", f"{message}: its sender is not in the network")
        if sender not in (None, message.sender):
            raise MessageError("sender", f"{message} was sent by {sender!r} under a false name")
        if message.round < self._round - self._staleness:
            raise _late(message, self._round)
        unread = self._unread.setdefault(message.sender, {})
        key = (message.round, message.kind)
        if key in unread or (message.round, message.sender, message.kind) in self._read:
            raise MessageError("duplicate", f"{message} arrived before; the first one counts")
        unread[key] = message
        if len(unread) > self._capacity:
            oldest = unread.pop(min(unread))
            raise MessageError(
                "overflow",
                f"{oldest} is dropped, its sender has more than {self._capacity} unread messages; "
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
