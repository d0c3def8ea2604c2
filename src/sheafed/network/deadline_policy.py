"""The wait policy of a peer: neighbours that are there are waited for until a deadline.

There is no server and no common clock. A peer waits in every round for the neighbours that are
there, so all stay within a round of each other. A neighbour that misses a deadline is skipped
until it sends again, and a peer that was away joins the round that its neighbours are in.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sheafed.errors import InputError
from sheafed.evaluation.peer_evaluator import ANSWER, PILOTS, QUESTION, RESULT
from sheafed.methods.node import ALIGNMENT, FROM_HEAD, FROM_TAIL, ROUND
from sheafed.network.neighbourhood import ANSWERS, ASKS, SHOWS, Neighbourhood
from sheafed.transport import Message
from sheafed.transport.wait_policy import Inbox, Reply, no_reply
from sheafed.transport.zenoh.transport import ZenohTransport

logger = logging.getLogger("sheafed.network")

ANNOUNCED = {QUESTION: ASKS, ANSWER: ANSWERS, RESULT: ASKS, PILOTS: SHOWS}
"""Kinds that a neighbour sends only if it has announced so in its hello."""
SYMMETRIC = (ROUND, ALIGNMENT)
"""Kinds that a neighbour sends if and only if it is sent one."""
DIRECTED = (FROM_HEAD, FROM_TAIL)
"""Kinds of which the method knows who sends them."""


@dataclass(frozen=True)
class Timeouts:
    """How long a peer waits, in seconds, and how old a message may be, in rounds.

    Args:
        deadline: for neighbours that are there, in every round.
        staleness: an absent message is replaced by the last one of up to so many rounds ago, as
            far as the method can use it; 0 leaves the edge out.
        join: for all neighbours to appear, before the first round.
        final: for absent neighbours when training ends, to evaluate with them.
    """

    deadline: float = 10.0
    staleness: int = 2
    join: float = 600.0
    final: float = 30.0

    def __post_init__(self) -> None:
        for name in ("deadline", "staleness", "join", "final"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(
                    f"{name} must be a number of at least 0, got {getattr(self, name)!r}"
                )


class DeadlinePolicy:
    """Waits for the messages of the neighbours of one agent.

    Args:
        neighbourhood: the neighbours of the agent.
        timeouts: how long to wait.
        last_round: the number of rounds of the whole training.
    """

    synchronous = False

    def __init__(self, neighbourhood: Neighbourhood, timeouts: Timeouts, last_round: int) -> None:
        self.missed = 0
        """Rounds that the network has taken while this agent was away."""
        self.left_out: Counter[str] = Counter()
        """In how many rounds no message of a neighbour could be used."""
        self.reused: Counter[str] = Counter()
        """In how many rounds an earlier message of a neighbour was used again."""
        self.stopping = False
        self.first_deadline: float | None = None
        """Of the first round, if longer: neighbours may still be in their handshakes."""
        self._hood, self._timeouts, self._last_round = neighbourhood, timeouts, last_round
        self._node = neighbourhood.node
        self._latest: dict[str, Message] = {}
        self._patient_until = 0.0
        self._exchanged = True

    @property
    def transport(self) -> ZenohTransport:
        return self._hood.transport

    def stop(self) -> None:
        """End after the current round, waiting for no one. Safe in a signal handler."""
        self.stopping = True
        self.transport.interrupt()

    def enter_round(self, round: int) -> int:
        """Skip the rounds that the neighbours have done, unless nothing is exchanged in between.

        Then there is nothing to be in step for.
        """
        self._hood.process_hellos()
        furthest = self._hood.furthest
        if self._exchanged and furthest > round:
            logger.warning(
                "%s was away in rounds %d to %d and joins the current one",
                *(self._node.name, round, furthest - 1),
            )
            self.missed += furthest - round
            round = furthest
        self._hood.begin(round)
        if round == self._last_round:
            self.await_absent()
        return round

    def await_absent(self) -> None:
        """From now on wait for absent neighbours too, for as long as the final timeout says."""
        self._patient_until = time.monotonic() + self._timeouts.final

    def send(self, messages: Iterable[Message]) -> None:
        self._hood.send(messages)

    def collect(
        self,
        round: int,
        expected: Mapping[str, Mapping[str, Collection[str]]],
        reply: Reply = no_reply,
    ) -> dict[str, dict[str, Inbox]]:
        name = self._node.name
        senders = {kind: self._senders(kind, of[name]) for kind, of in expected.items()}
        patience = max(0.0, self._patient_until - time.monotonic())
        deadline = self._timeouts.deadline
        if ROUND in expected and self.first_deadline is not None:
            deadline, self.first_deadline = self.first_deadline, None

        def answer(kind: str, inbox: Inbox) -> None:
            self._hood.send(reply(name, kind, inbox))

        inboxes = self._hood.collect(round, senders, deadline, patience, answer)
        if ROUND in inboxes:
            inboxes[ROUND] = self._completed(round, senders[ROUND], inboxes[ROUND])
        return {kind: {name: inbox} for kind, inbox in inboxes.items()}

    def for_evaluation(self) -> DeadlinePolicy:
        return self

    def state(self) -> dict[str, Any]:
        return {
            "missed": self.missed,
            "left_out": dict(self.left_out),
            "reused": dict(self.reused),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.missed = state["missed"]
        self.left_out, self.reused = Counter(state["left_out"]), Counter(state["reused"])

    def _senders(self, kind: str, neighbours: Collection[str]) -> frozenset[str]:
        """Return the neighbours that can be expected to send messages of a kind."""
        if kind in SYMMETRIC:
            return self._hood.receivers(kind) & frozenset(neighbours)
        if kind in DIRECTED:
            return frozenset(neighbours) - self.transport.revoked
        flag = ANNOUNCED[kind]
        return frozenset(j for j in neighbours if self._hood.announces(j, flag) is not False)

    def _completed(
        self, round: int, senders: frozenset[str], fresh: dict[str, Message]
    ) -> dict[str, Message]:
        """Return the messages of a round, with earlier ones for those that are missing."""
        self._exchanged = bool(senders)
        self._latest |= fresh
        inbox = fresh | self._reusable(round, senders - fresh.keys())
        self.left_out.update(senders - inbox.keys())
        self.reused.update(inbox.keys() - fresh.keys())
        return dict(sorted(inbox.items()))

    def _reusable(self, round: int, missing: frozenset[str]) -> dict[str, Message]:
        """Return earlier messages of some neighbours, as far as the method can use them."""
        late = self.transport.receive_stale(ROUND, missing)
        found = {}
        for j in missing & self._hood.met.keys():
            known = [m for m in (late.get(j), self._latest.get(j)) if m is not None]
            latest = max(known, key=lambda m: m.round, default=None)
            if latest is not None and round - latest.round <= self._timeouts.staleness:
                self._latest[j] = latest
                message = self._node.reuse(round, latest)
                if message is not None:
                    found[j] = message
        return found
