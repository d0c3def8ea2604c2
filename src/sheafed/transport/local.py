"""The transport inside one process: the reference for all others."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from sheafed.errors import InputError, TransportClosedError, UnknownAgentError
from sheafed.transport.codec import encode, hand_over
from sheafed.transport.ledger import Ledger
from sheafed.transport.mailbox import Mailbox
from sheafed.transport.message import Message


class LocalTransport:
    """Delivers at once what the receiver would decode from the bytes of a message.

    Agents share nothing: a message is a copy, see `hand_over`. It is checked, and counted, as if it
    were encoded; it is encoded if there is a tap.

    Args:
        names: the agents of the network.
        ledger: one to continue, e.g. from a checkpoint; a new one by default.
        tap: called with the bytes of every message sent, as an eavesdropper would see them.
        drop: whether a message is lost on its way, for tests with faults. Its sender has sent it,
            so the ledger counts it.

    >>> import torch
    >>> transport = LocalTransport(["ada", "bo"])
    >>> transport.send([Message("latents", 0, "ada", "bo", {"z": torch.zeros(8, 4)})])
    >>> inbox = transport.receive("bo", 0, "latents", ["ada"])
    >>> inbox["ada"].tensors["z"].shape
    torch.Size([8, 4])
    >>> transport.receive("bo", 0, "latents", ["ada"])  # every message is received once
    {}
    >>> transport.ledger.payload_bytes()
    128
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
            raise InputError(f"names of agents must be unique, got {sorted(names)}; rename some")
        senders = frozenset(names)
        self._mailboxes = {name: Mailbox(name, senders) for name in names}
        self._ledger = Ledger() if ledger is None else ledger
        self._tap = tap
        self._drop = drop
        self._closed = False

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def rejected(self) -> Counter[str]:
        return sum((mailbox.rejected for mailbox in self._mailboxes.values()), Counter())

    def send(self, messages: Iterable[Message]) -> None:
        """Record and deliver the messages, in this order."""
        self._check_open()
        for message in messages:
            self._check_known(message.sender, message.receiver)
            if self._tap is None and self.is_here(message.receiver):
                handed = hand_over(message)
                self._ledger.count(message, handed)
                if self._drop is None or not self._drop(message):
                    self._mailboxes[message.receiver].put_message(handed.message)
                continue
            encoded = encode(message)
            self._ledger.count(message, encoded)
            if self._tap is not None:
                self._tap(encoded.data)
            if self._drop is None or not self._drop(message):
                self.deliver(message.receiver, encoded.data)

    def is_here(self, agent: str) -> bool:
        """Whether this process hosts an agent."""
        return agent in self._mailboxes

    def barrier(self, round: int, kind: str) -> None:
        """Do nothing: what was sent has arrived."""

    def deliver(self, receiver: str, data: bytes) -> None:
        """Put bytes into the mailbox of an agent, which checks them."""
        self._check_open()
        self._check_known(receiver)
        self._mailboxes[receiver].put(data)

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        self._check_open()
        self._check_known(receiver, *senders)
        return self._mailboxes[receiver].take(round, kind, senders)

    def close(self) -> None:
        self._closed = True
        for mailbox in self._mailboxes.values():
            mailbox.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise TransportClosedError("this transport is closed; make a new one to continue")

    def _check_known(self, *names: str) -> None:
        for name in names:
            if name not in self._mailboxes:
                raise UnknownAgentError(
                    f"unknown agent {name!r}; this transport has {sorted(self._mailboxes)}"
                )
