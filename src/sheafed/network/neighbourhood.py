"""Who of an agent's neighbours is here, has been met, is worth waiting for, and how far it is.

Agents greet each other when one sees the other appear, and whenever one goes on without the
other. A greeting is the `hello` of the handshake with the sender's current round, so that who was
away can join in where the others are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from sheafed.errors import HandshakeError
from sheafed.methods.node import Node
from sheafed.transport.message import Message
from sheafed.transport.zenoh.transport import ZenohTransport

MET, FINISHED = "has met you", "finished"
ASKS, ANSWERS, SHOWS = "asks", "answers", "shows pilots"
"""What a greeting says beside the handshake."""
REPEAT_SECONDS = 1.0
"""How often somebody who is here and has not been met is greeted again."""

logger = logging.getLogger("sheafed.training")


class Neighbourhood:
    """The neighbours of one agent, as it knows them.

    Args:
        node: the agent's program.
        exchange: what carries its messages.
        last_round: the number of rounds of the whole training; nobody can be further.
    """

    def __init__(self, node: Node, transport: ZenohTransport, last_round: int) -> None:
        self.node, self.transport, self.last_round = node, transport, last_round
        self.round = 0
        """The one this agent is in; `last_round` when there are no more."""
        self.finished = False
        self.met: dict[str, Message] = {}
        """The latest greeting of each neighbour that means the same thing."""
        self.refused: dict[str, str] = {}
        """Why others are not talked to."""
        self.furthest = 0
        """The highest round that anybody has greeted from."""
        self._said: list[Message] = []
        self._here: frozenset[str] = frozenset()
        self._silent: dict[str, int] = {}
        self._greeted: dict[str, float] = {}

    @property
    def awaited(self) -> frozenset[str]:
        """Whom to wait for: who is here, not ahead, and did not let the last deadline pass."""
        heard = self.transport.arrivals
        self._silent = {j: n for j, n in self._silent.items() if heard[j] == n}
        near = {j for j, hello_message in self.met.items() if hello_message.round <= self.round}
        return self.transport.present & near - self._silent.keys()

    def says(self, neighbour: str, what: str) -> bool | None:
        """What a neighbour has said of itself, e.g. whether it asks questions, if it has."""
        if neighbour not in self.met:
            return None
        return self.met[neighbour].fields.get(what) is True

    def begin(self, round: int) -> None:
        """Enter a round: what was said before is no longer repeated to those who return."""
        self.round, self._said = round, []

    def say(self, messages: Iterable[Message]) -> frozenset[str]:
        """Send messages; return to whom."""
        listed = list(messages)
        self._said += listed
        self.transport.send(m for m in listed if m.receiver in self.met)
        return frozenset(m.receiver for m in listed)

    def hear(
        self,
        round: int,
        expected: Mapping[str, frozenset[str]],
        deadline: float,
        patience: float = 0.0,
        answer: Callable[[str, dict[str, Message]], None] = lambda kind, inbox: None,
    ) -> dict[str, dict[str, Message]]:
        """Return the messages of a round, by kind and sender, sorted by name.

        Those that are here and let the deadline pass are told where this agent is, and not waited
        for until they are heard from again.

        Args:
            round: which one.
            expected: the senders of each kind.
            deadline: seconds to wait for those who are here.
            patience: seconds before that, in which the absent are waited for too.
            answer: called with a kind and what has come of it, as soon as it has.
        """
        heard: dict[str, dict[str, Message]] = {kind: {} for kind in expected}
        patient_until = time.monotonic() + patience
        end = patient_until + deadline
        while True:
            news = self.transport.events
            self.attend()
            missing: set[str] = set()
            for kind, senders in expected.items():
                asked = self.met.keys() & senders - heard[kind].keys()
                fresh = self.transport.receive(self.node.name, round, kind, asked)
                heard[kind] |= fresh
                if fresh:
                    answer(kind, fresh)
                missing |= senders - heard[kind].keys()
            now = time.monotonic()
            waiting = missing if now < patient_until else missing & self.awaited
            if not waiting or now >= end or self.transport.interrupted:
                break
            self.transport.wait((patient_until if now < patient_until else end) - now, since=news)
        if not self.transport.interrupted:
            self._leave_behind(round, missing & self.awaited, deadline + patience)
        return {kind: dict(sorted(inbox.items())) for kind, inbox in heard.items()}

    def _leave_behind(self, round: int, neighbours: Collection[str], seconds: float) -> None:
        for j in neighbours:
            self._silent[j] = self.transport.arrivals[j]
            logger.warning(
                "%s, round %d: %s is here but has not spoken in %.1f s; going on without it",
                *(self.node.name, round, j, seconds),
            )
        self.greet(neighbours)

    def attend(self) -> None:
        """Hear greetings, and greet who has appeared or does not know this agent yet."""
        here, now = self.transport.present, time.monotonic()
        appeared, self._here = here - self._here, here
        known, strangers = set(self.met), set()
        for neighbour, message in self.transport.announcements().items():
            if self._meet(neighbour, message) and message.fields.get(MET) is not True:
                strangers.add(neighbour)
        unanswered = {
            j
            for j in here - self.met.keys()
            if now - self._greeted.get(j, -REPEAT_SECONDS) >= REPEAT_SECONDS
        }
        self.greet(appeared | strangers | unanswered)
        # What was sent before somebody was there and met is lost.
        missed = self.met.keys() & (appeared | strangers | self.met.keys() - known)
        self.transport.send(m for m in self._said if m.receiver in missed)

    def greet(self, neighbours: Collection[str]) -> None:
        """Say who this agent is and which round it is in."""
        if not neighbours:
            return
        agent, about = self.node.agent, {FINISHED: self.finished, SHOWS: self.node.shows_pilots}
        about |= {ASKS: agent.data.test is not None, ANSWERS: agent.head is not None}
        for message in self.node.hello():
            j = message.receiver
            if j in neighbours:
                fields = {**message.fields, **about, MET: j in self.met}
                self.transport.announce([replace(message, round=self.round, fields=fields)])
                self._greeted[j] = time.monotonic()

    def _meet(self, neighbour: str, message: Message) -> bool:
        try:
            own_settings = self.node.check_hello(message)
            self._check_unchanged(neighbour, own_settings)
            if message.round > self.last_round:
                raise HandshakeError(
                    f"agent {neighbour!r} says it is in round {message.round}, there are "
                    f"{self.last_round}; give all the same number of epochs"
                )
        except HandshakeError as problem:
            if self.refused.get(neighbour) != str(problem):
                logger.error("%s does not talk to %s: %s", self.node.name, neighbour, problem)
            self.refused[neighbour] = str(problem)
            self.met.pop(neighbour, None)
            return False
        self.refused.pop(neighbour, None)
        self.met[neighbour] = message
        self.furthest = max(self.furthest, message.round)
        return True

    def _check_unchanged(self, neighbour: str, said: Mapping[str, int]) -> None:
        before = self.node.peers.get(neighbour, said)
        for what, value in said.items():
            if before[what] != value:
                raise HandshakeError(
                    f"the {what} of agent {neighbour!r} was {before[what]} and is {value} now; "
                    "resume it with the model that it had"
                )
