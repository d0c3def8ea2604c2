"""Who of an agent's neighbours is here, has been met, is worth waiting for, and how far it is.

Agents greet each other when one sees the other appear, and whenever one goes on without the
other. A greeting is the `hello` of the handshake with the sender's current round, so that who was
away can join in where the others are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sheafed.domain.messages import Message
from sheafed.errors import HandshakeError
from sheafed.exchange.network import NetworkExchange
from sheafed.methods.node import Node

MET, FINISHED, ASKS, ANSWERS = "has met you", "finished", "asks", "answers"
"""What a greeting says beside the handshake."""
REPEAT_SECONDS = 1.0
"""How often somebody who is here and has not been met is greeted again."""

logger = logging.getLogger("sheafed.runtime")


class Neighbourhood:
    """The neighbours of one agent, as it knows them.

    Args:
        node: the agent's program.
        exchange: what carries its messages.
        last_round: the number of rounds of the whole training; nobody can be further.
    """

    def __init__(self, node: Node, exchange: NetworkExchange, last_round: int) -> None:
        self.node, self.exchange, self.last_round = node, exchange, last_round
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
        """Whom to wait for: who is here, means the same, and did not let the last deadline pass."""
        heard = self.exchange.heard
        self._silent = {j: n for j, n in self._silent.items() if heard[j] == n}
        return frozenset(self.met) & self.exchange.present - set(self._silent)

    def knows(self, neighbour: str, what: str) -> bool:
        """Whether a neighbour has said something of itself, e.g. that it asks questions."""
        return neighbour in self.met and self.met[neighbour].fields.get(what) is True

    def begin(self, round: int) -> None:
        """Enter a round: what was said before is no longer repeated to those who return."""
        self.round, self._said = round, []

    def say(self, messages: Iterable[Message]) -> frozenset[str]:
        """Send messages; return to whom."""
        listed = list(messages)
        self._said += listed
        self.exchange.send(m for m in listed if m.receiver in self.met)
        return frozenset(m.receiver for m in listed)

    def hear(
        self,
        round: int,
        kind: str,
        senders: Collection[str],
        deadline: float,
        patient: float = 0.0,
    ) -> dict[str, Message]:
        """Return what the senders say in a round; wait for them up to a deadline.

        Those that are present and let it pass are told where this agent is, and not waited for
        until they are heard from again. For the absent it waits `patient` seconds.
        """
        until = time.monotonic() + patient

        def awaited() -> frozenset[str]:
            self.attend()
            return frozenset(senders) if time.monotonic() < until else self.awaited

        inbox: dict[str, Message] = {}
        for seconds in (patient, deadline) if patient else (deadline,):
            missing = set(senders) - set(inbox)
            inbox |= self.exchange.receive(self.node.name, round, kind, missing, seconds, awaited)
        left_behind = self.awaited & set(senders) - set(inbox)
        if self.exchange.interrupted:
            left_behind = frozenset()  # it was this agent that did not wait
        for j in left_behind:
            self._silent[j] = self.exchange.heard[j]
            logger.warning(
                "%s, round %d: %s is here but has not spoken in %.1f s; going on without it",
                *(self.node.name, round, j, max(deadline, patient)),
            )
        self.greet(left_behind)
        return dict(sorted((j, m) for j, m in inbox.items() if j in self.met))

    def attend(self) -> None:
        """Hear greetings, and greet who has appeared or does not know this agent yet."""
        owed = set()
        for neighbour, message in self.exchange.greetings().items():
            if self._meet(neighbour, message) and message.fields.get(MET) is not True:
                owed.add(neighbour)
        here, now = self.exchange.present, time.monotonic()
        owed |= here - self._here
        self._here = here
        owed |= {
            j
            for j in here - set(self.met)
            if now - self._greeted.get(j, -REPEAT_SECONDS) >= REPEAT_SECONDS
        }
        self.greet(owed)
        # They have not heard it: what was sent to nobody is lost.
        self.exchange.send(m for m in self._said if m.receiver in owed & self.met.keys())

    def greet(self, neighbours: Collection[str]) -> None:
        """Say who this agent is and which round it is in."""
        if not neighbours:
            return
        data, about = self.node.agent.data, {FINISHED: self.finished}
        about |= {ASKS: data.test is not None, ANSWERS: self.node.agent.head is not None}
        for message in self.node.hello():
            j = message.receiver
            if j in neighbours:
                fields = {**message.fields, **about, MET: j in self.met}
                self.exchange.greet([replace(message, round=self.round, fields=fields)])
                self._greeted[j] = time.monotonic()

    def _meet(self, neighbour: str, message: Message) -> bool:
        try:
            introduction = self.node.introduced(neighbour, message)
            self._check_unchanged(neighbour, introduction)
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
