"""How the agents of a process wait for messages of slow neighbours.

`Barrier` waits until all processes have sent; peers on a network wait until a deadline, see
`sheafed.network.deadline_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from sheafed.transport.base import Transport
from sheafed.transport.message import Message

Inbox = Mapping[str, Message]
"""Messages by sender."""
Reply = Callable[[str, str, Inbox], Iterable[Message]]
"""From a receiver, a kind and its messages of that kind to what it sends in reply."""


def no_reply(receiver: str, kind: str, inbox: Inbox) -> Iterable[Message]:
    return ()


class WaitPolicy(Protocol):
    """Sends messages and decides how long to wait for those of others."""

    @property
    def transport(self) -> Transport:
        """Carries the messages of training."""

    @property
    def synchronous(self) -> bool:
        """Whether all agents of the network are in the same round."""

    @property
    def stopping(self) -> bool:
        """Whether this process was asked to end after its current round."""

    def enter_round(self, round: int) -> int:
        """Return the round to take part in: a later one, if neighbours have gone on alone."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages of the agents of this process."""

    def collect(
        self,
        round: int,
        expected: Mapping[str, Mapping[str, Collection[str]]],
        reply: Reply = no_reply,
    ) -> dict[str, dict[str, Inbox]]:
        """Wait for messages and return them by kind and receiver, each inbox sorted by sender.

        Args:
            round: the round of the messages.
            expected: the senders of each kind to each receiver. Kinds stand in the order in which
                they can be complete: a kind of reply comes after the kind that it replies to.
            reply: called with the messages of a kind to a receiver when they have arrived.
        """

    def for_evaluation(self) -> WaitPolicy:
        """Return the policy for messages that are not part of training."""


class Barrier:
    """Waits until all processes have sent: nothing is late, what is absent was never sent.

    Args:
        transport: carries the messages of training.
        new_transport: makes another one for each evaluation, whose bytes are not counted; the
            same transport by default.
    """

    stopping = False
    synchronous = True

    def __init__(
        self, transport: Transport, new_transport: Callable[[], Transport] | None = None
    ) -> None:
        self.transport = transport
        self._new_transport = new_transport

    def enter_round(self, round: int) -> int:
        return round

    def send(self, messages: Iterable[Message]) -> None:
        self.transport.send(messages)

    def collect(
        self,
        round: int,
        expected: Mapping[str, Mapping[str, Collection[str]]],
        reply: Reply = no_reply,
    ) -> dict[str, dict[str, Inbox]]:
        collected: dict[str, dict[str, Inbox]] = {}
        for kind, receivers in expected.items():
            self.transport.barrier(round, kind)
            collected[kind] = {}
            for receiver, senders in receivers.items():
                inbox = self.transport.receive(receiver, round, kind, senders)
                collected[kind][receiver] = inbox
                self.transport.send(reply(receiver, kind, inbox))
        return collected

    def for_evaluation(self) -> Barrier:
        return self if self._new_transport is None else Barrier(self._new_transport())
