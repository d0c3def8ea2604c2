"""The neighbours of a peer: which are present, have shaken hands, are waited for, and their rounds.

Peers send each other a hello when one sees the other appear, and whenever one goes on without the
other. It is the `hello` of the handshake with the sender's current round, so that a peer that was
away can join the round that the others are in.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from sheafed.errors import HandshakeError, InputError, NetworkError
from sheafed.evaluation.peer_evaluator import labelled_samples
from sheafed.methods.handshake import check_hello, hello_messages
from sheafed.methods.node import Node
from sheafed.network.identities import Identities
from sheafed.transport.message import Message
from sheafed.transport.zenoh.transport import ZenohTransport

MET, FINISHED = "hello received", "finished"
ASKS, ANSWERS, SHOWS = "asks", "answers", "shows pilots"
"""The flags of a hello beside the handshake."""
RETURNS = "returns"
"""The flag of the hello of an agent that opens its links anew, and will be back in a moment."""
REPEAT_SECONDS = 1.0
"""How often a hello is repeated to a neighbour that is present and has not answered."""

logger = logging.getLogger("sheafed.network")


class Neighbourhood:
    """The neighbours of one agent, as it knows them.

    Args:
        node: the agent's node.
        transport: carries its messages.
        last_round: the number of rounds of the whole training.
        take_over: whether to replace a live process of the same name.
    """

    def __init__(
        self, node: Node, transport: ZenohTransport, last_round: int, take_over: bool = False
    ) -> None:
        self.node, self.transport, self.last_round = node, transport, last_round
        self._identities = Identities(transport, take_over)
        self.round = 0
        """The one this agent is in; `last_round` when there are no more."""
        self.finished = False
        self.met: dict[str, Message] = {}
        """The latest hello of each neighbour that has agreed to the same settings."""
        self.refused: dict[str, str] = {}
        """Why the handshake with other neighbours failed."""
        self.furthest = 0
        """The highest round of any hello."""
        self._sent: list[Message] = []
        self._sent_before: list[Message] = []  # in the round before
        self._returning: set[str] = set()
        self._appearances: Counter[str] = Counter()
        self._silent: dict[str, int] = {}
        self._greeted: dict[str, float] = {}

    @property
    def awaited(self) -> frozenset[str]:
        """The neighbours to wait for: present, not ahead, and in time for their last deadline."""
        arrivals = self.transport.arrivals
        self._silent = {j: n for j, n in self._silent.items() if arrivals[j] == n}
        near = {j for j, hello_message in self.met.items() if hello_message.round <= self.round}
        return self.transport.present & near - self._silent.keys()

    def announces(self, neighbour: str, flag: str) -> bool | None:
        """Return a flag of a neighbour's hello; None if there was no hello yet."""
        if neighbour in self.transport.revoked:
            return False
        hello_message = self.met.get(neighbour)  # once: the thread of the status asks, too
        return None if hello_message is None else hello_message.fields.get(flag) is True

    def begin(self, round: int) -> None:
        """Enter a round: earlier messages are no longer repeated to neighbours that return."""
        self.round, self._sent_before, self._sent = round, self._sent, []

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages, again to neighbours that appear later in this round."""
        listed = [m for m in messages if m.receiver not in self.transport.revoked]
        self._sent += listed
        self.transport.send(m for m in listed if m.receiver in self.met)

    def receivers(self, kind: str) -> frozenset[str]:
        """Return the neighbours to which messages of a kind were sent in this round."""
        return frozenset(m.receiver for m in self._sent if m.kind == kind)

    def collect(
        self,
        round: int,
        expected: Mapping[str, frozenset[str]],
        deadline: float,
        patience: float = 0.0,
        answer: Callable[[str, dict[str, Message]], None] = lambda kind, inbox: None,
    ) -> dict[str, dict[str, Message]]:
        """Return the messages of a round, by kind and sender, sorted by name.

        A neighbour that is present and misses the deadline gets a hello with the round of this
        agent, and is skipped until it sends again.

        Args:
            round: the round of the messages.
            expected: the senders of each kind.
            deadline: seconds to wait for neighbours that are present.
            patience: seconds before that, in which absent neighbours are waited for too.
            answer: called with a kind and its messages when some have arrived.
        """
        received: dict[str, dict[str, Message]] = {kind: {} for kind in expected}
        patient_until = time.monotonic() + patience
        end = patient_until + deadline
        while True:
            news = self.transport.events
            self.process_hellos()
            missing: set[str] = set()
            for kind, senders in expected.items():
                asked = self.met.keys() & senders - received[kind].keys()
                fresh = self.transport.receive(self.node.name, round, kind, asked)
                received[kind] |= fresh
                if fresh:
                    answer(kind, fresh)
                missing |= senders - received[kind].keys()
            now = time.monotonic()
            waiting = missing if now < patient_until else missing & self.awaited
            if not waiting or now >= end or self.transport.interrupted:
                break
            self.transport.wait((patient_until if now < patient_until else end) - now, since=news)
        if not self.transport.interrupted:
            self._skip(round, missing & self.awaited, deadline + patience)
        return {kind: dict(sorted(inbox.items())) for kind, inbox in received.items()}

    def _skip(self, round: int, neighbours: Collection[str], seconds: float) -> None:
        for j in neighbours:
            self._silent[j] = self.transport.arrivals[j]
            logger.warning(
                "%s, round %d: %s is present but has sent nothing for %.1f s; skipping it",
                *(self.node.name, round, j, seconds),
            )
        self.send_hello(neighbours)

    def process_hellos(self) -> None:
        """Read hellos, and send one to neighbours that have appeared or do not know this agent."""
        if self.transport.renewal_due():
            self._renew()
        here, now = self.transport.present, time.monotonic()
        appearances = self.transport.appearances
        appeared = {j for j in here if appearances[j] != self._appearances[j]}
        self._appearances = appearances
        known, unacknowledged = set(self.met), set()
        for neighbour, message in self.transport.announcements().items():
            accepted = self._identities.is_accepted(neighbour, message, neighbour in self.met)
            if not accepted:
                continue
            if self._meet(neighbour, message) and message.fields.get(MET) is not True:
                unacknowledged.add(neighbour)
        unanswered = {
            j
            for j in here - self.met.keys()
            if now - self._greeted.get(j, -REPEAT_SECONDS) >= REPEAT_SECONDS
        }
        # One round before, neighbours that return may still be in. Sent before the hello, which
        # would tell them that this agent is ahead and need not be waited for.
        returned = self._returning & appeared
        self._returning -= returned
        self.transport.send(
            m for m in self._sent_before if m.receiver in returned & self.met.keys()
        )
        self.send_hello(appeared | unacknowledged | unanswered)
        # What was sent before a neighbour was present and known is lost.
        missed = self.met.keys() & (appeared | unacknowledged | self.met.keys() - known)
        self.transport.send(m for m in self._sent if m.receiver in missed)

    def send_hello(self, neighbours: Collection[str], returns: bool = False) -> None:
        """Send the hello of this agent, with the round it is in."""
        if not neighbours:
            return
        agent, about = self.node.agent, {FINISHED: self.finished, SHOWS: self.node.shows_pilots}
        asks = labelled_samples(self.node, "test") is not None
        about |= {ASKS: asks, ANSWERS: agent.head is not None}
        for message in hello_messages(self.node):
            j = message.receiver
            if j in neighbours:
                identity = self._identities.fields(j)
                flags = {**about, **identity, MET: j in self.met, RETURNS: returns}
                fields = {**message.fields, **flags}
                self.transport.announce([replace(message, round=self.round, fields=fields)])
                self._greeted[j] = time.monotonic()

    def _renew(self) -> None:
        """Take up replaced certificate files, without going on alone in the meantime."""
        here = self.transport.present
        # Not before what was sent a round ago, which one that has just returned may lack: by the
        # hello it learns that this agent is ahead and need not be waited for.
        self.transport.send(m for m in self._sent_before if m.receiver in here & self.met.keys())
        self.send_hello(here & self.met.keys(), returns=True)
        self._returning |= here
        try:
            self.transport.renew()
        except (NetworkError, InputError) as problem:  # tried again in a second
            logger.error("%s cannot open its links anew for now: %s", self.node.name, problem)
        for neighbour in self.transport.revoked & self.met.keys():
            logger.warning("%s: neighbour %s is revoked", self.node.name, neighbour)
            del self.met[neighbour]

    def _meet(self, neighbour: str, message: Message) -> bool:
        try:
            self._check_unchanged(neighbour, check_hello(self.node, message))
            if message.round > self.last_round:
                raise HandshakeError(
                    f"agent {neighbour!r} is in round {message.round}, of {self.last_round} here; "
                    "give all agents the same number of epochs"
                )
            accepted = self._identities.accepts(neighbour, message)
        except HandshakeError as problem:
            if self.refused.get(neighbour) != str(problem):
                logger.error(
                    "handshake of %s with %s failed: %s", self.node.name, neighbour, problem
                )
            self.refused[neighbour] = str(problem)
            self.met.pop(neighbour, None)
            return False
        if not accepted:
            logger.warning(
                "%s: another process named %s greets while the first one is live; refusing it",
                *(self.node.name, neighbour),
            )
            self.send_hello([neighbour])
            return False
        self.refused.pop(neighbour, None)
        self.met[neighbour] = message
        if message.fields.get(RETURNS) is True:
            self._returning.add(neighbour)
            self.transport.expect_back(neighbour)
        self.furthest = max(self.furthest, message.round)
        return True

    def _check_unchanged(self, neighbour: str, declared: Mapping[str, int]) -> None:
        before = self.node.peers.get(neighbour, declared)
        for what, value in declared.items():
            if before.get(what) != value:
                raise HandshakeError(
                    f"the {what} of agent {neighbour!r} was {before.get(what)} and is {value} now; "
                    "resume it with the model that it had"
                )
