"""The rounds of one agent whose neighbours are other processes that may be slow, away or gone.

There is no server and no clock in common. An agent goes at its own pace, but waits in every round
for the neighbours that are there, so all stay within a round of each other. Who let a deadline
pass is not waited for until it is heard from again, and who was away joins the round that its
neighbours are in. With no fault and a generous deadline, weights and metrics are those of `train`.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sheafed.atomic_io import write_atomically
from sheafed.checkpointing.checkpoint import save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT, LAST, METRICS, SUMMARY
from sheafed.errors import HandshakeError, InputError, RunExistsError
from sheafed.evaluation.evaluation import mean
from sheafed.methods.node import ROUND, Method, Node
from sheafed.network.neighbourhood import FINISHED, Neighbourhood
from sheafed.network.peer_evaluation import evaluate_here
from sheafed.network.peer_run import PeerRun
from sheafed.network.status import STATUS, State, Status, StatusFile
from sheafed.training.callbacks import append_record, write_records
from sheafed.training.identity import check_epochs
from sheafed.transport.message import Message
from sheafed.transport.zenoh.transport import ZenohTransport

QUIET_SECONDS = 2.0
"""Who returns has heard from everybody who is there when nobody new has spoken for so long."""

logger = logging.getLogger("sheafed.training")


@dataclass(frozen=True)
class Timeouts:
    """How long an agent waits, in seconds, and how old a message may be, in rounds.

    Args:
        deadline: for neighbours that are there, in every round.
        staleness: an absent message is replaced by the last one of up to so many rounds ago, as
            far as the method can use it; 0 leaves the edge out.
        join: for all neighbours to appear and begin, before the first round.
        final: for neighbours that are absent when training ends, to evaluate with them.
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


class PeerAgent:
    """One agent on its network.

    Args:
        node: its program, before the handshake.
        exchange: its links; kept open, for whoever made it to close.
        method: whose program that is.
        epochs: how long.
        out: a directory for metrics, checkpoint, weights, status and summary.
        timeouts: how long to wait for others.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
    """

    def __init__(
        self,
        node: Node,
        transport: ZenohTransport,
        *,
        method: Method,
        epochs: int,
        out: Path,
        timeouts: Timeouts | None = None,
        evaluate_every: int = 1,
        checkpoint_every: int | None = None,
    ) -> None:
        self.run = PeerRun(node, method, transport.ledger, epochs)
        self.timeouts = timeouts or Timeouts()
        self.out = out
        self.state: State = "waiting"
        self._node, self._exchange = node, transport
        self._neighbourhood = Neighbourhood(node, transport, self.run.total)
        self._evaluate_every = evaluate_every
        self._checkpoint_every = checkpoint_every or node.context.rounds_per_epoch
        self._last: dict[str, Message] = {}
        self._in_step = True
        self._stopping = False

    def stop(self) -> None:
        """End after the current round, waiting for nobody. May be called from a signal handler."""
        self._stopping = True
        self._exchange.interrupt()

    def train(self, resume: bool = False) -> PeerRun:
        """Train to the end, or until `stop`, and return what came of it."""
        run, checkpoint = self.run, self.out / CHECKPOINT
        if checkpoint.exists() and not resume:
            raise RunExistsError(
                f"{self.out} already holds a run; go on with resume, or choose another place"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        fresh = not checkpoint.exists()
        with StatusFile(self.out / STATUS, self.status):
            try:
                if not fresh:
                    run.restore(checkpoint)
                    check_epochs(self.out, run.rounds, run.epochs, run.rounds_per_epoch)
                started = time.monotonic() - run.seconds
                write_records(self.out / METRICS, run.metrics)
                self._join(fresh)
                if not self._stopping:
                    self._rounds(started, fresh)
                self.state = "stopped" if self._stopping else "finished"
            except BaseException:
                self.state = "failed"
                raise
        return run

    def status(self) -> Status:
        """Return how this agent is."""
        run, last = self.run, self.run.last or {}
        present = self._exchange.present
        return Status(
            agent=self._node.name,
            state=self.state,
            round=run.rounds,
            rounds=run.total,
            private_accuracy=last.get("private_accuracy"),
            communication_accuracy=last.get("communication_accuracy"),
            bytes_sent=run.ledger.bytes_sent(),
            present=sorted(present),
            absent=sorted(set(self._node.neighbours) - present),
            rejected=dict(self._exchange.rejected + Counter(self._node.rejected)),
            unknown_peers=dict(self._exchange.unknown_peers),
            refused=dict(self._neighbourhood.refused),
        )

    # The handshake

    def _join(self, fresh: bool) -> None:
        """Meet the neighbours; learn which round they are in."""
        hood, everybody = self._neighbourhood, set(self._node.neighbours)
        hood.begin(self.run.rounds)
        began = quiet_since = time.monotonic()
        patience = self.timeouts.join if fresh else self.timeouts.deadline
        known = -1
        while not self._stopping:
            news, now = self._exchange.events, time.monotonic()
            hood.attend()
            if len(hood.met) != known:
                known, quiet_since = len(hood.met), now
                missing = sorted(everybody - set(hood.met))
                logger.info("%s has met %s, awaits %s", hood.node.name, sorted(hood.met), missing)
            returned = not fresh and known > 0 and now - quiet_since > QUIET_SECONDS
            if everybody <= hood.met.keys() or returned or now - began > patience:
                break
            self._exchange.wait(0.2, since=news)
        if fresh and not self._stopping:
            if hood.refused:
                raise HandshakeError("; ".join(hood.refused.values()))
            self._node.finish_handshake(hood.met)
            self.run.save(self.out / CHECKPOINT)

    # The rounds

    def _rounds(self, started: float, fresh: bool) -> None:
        run, hood = self.run, self._neighbourhood
        self.state = "training"
        # Others may still be meeting theirs, so the first round waits as long as they may.
        deadline = self.timeouts.join if fresh else self.timeouts.deadline
        while run.rounds < run.total and not self._stopping:
            hood.attend()
            self._catch_up()
            if run.rounds == run.total:
                break
            self._round(run.rounds, deadline)
            deadline = self.timeouts.deadline
            run.rounds += 1
            run.seconds = time.monotonic() - started
            if self._is_due() and run.rounds < run.total and not self._stopping:
                self._evaluate()
            if run.rounds % self._checkpoint_every == 0:
                run.save(self.out / CHECKPOINT)
        if not self._stopping and (run.last or {}).get("round") != run.total:
            hood.begin(run.total)
            self._evaluate(patience=self.timeouts.final)
            self._part()
        run.seconds = time.monotonic() - started
        run.save(self.out / CHECKPOINT)
        save_checkpoint(self.out / LAST, self._node.agent.weights())
        write_atomically(self.out / SUMMARY, json.dumps(run.summary(), indent=2).encode())

    def _round(self, round: int, deadline: float) -> None:
        node, hood, run = self._node, self._neighbourhood, self.run
        hood.begin(round)
        told = hood.say(node.send(round))  # who is told something has something to tell
        fresh = hood.hear(round, {ROUND: told}, deadline)[ROUND]
        self._last |= fresh
        inbox = fresh | self._reusable(round, told - fresh.keys())
        self._in_step = bool(told)
        run.left_out.update(told - inbox.keys())
        run.reused.update(inbox.keys() - fresh.keys())
        for key, value in node.receive(round, dict(sorted(inbox.items()))).items():
            run.totals.setdefault(key, []).append(value)

    def _reusable(self, round: int, missing: frozenset[str]) -> dict[str, Message]:
        """Return what earlier messages of some neighbours can still say."""
        late = self._exchange.receive_stale(ROUND, missing)
        found = {}
        for j in missing & self._neighbourhood.met.keys():
            known = [m for m in (late.get(j), self._last.get(j)) if m is not None]
            latest = max(known, key=lambda m: m.round, default=None)
            if latest is not None and round - latest.round <= self.timeouts.staleness:
                self._last[j] = latest
                message = self._node.reuse(round, latest)
                if message is not None:
                    found[j] = message
        return found

    def _catch_up(self) -> None:
        """Skip the rounds that the neighbours have behind them.

        Not in the middle of rounds in which nobody tells anybody anything: there is nothing to
        be in step for.
        """
        run, hood = self.run, self._neighbourhood
        if self._in_step and hood.furthest > run.rounds:
            logger.warning(
                "%s was away in rounds %d to %d and joins the current one",
                *(self._node.name, run.rounds, hood.furthest - 1),
            )
            run.missed += hood.furthest - run.rounds
            run.rounds = hood.furthest

    # Evaluation

    def _is_due(self) -> bool:
        epoch, rest = divmod(self.run.rounds, self.run.rounds_per_epoch)
        return rest == 0 and epoch % self._evaluate_every == 0

    def _evaluate(self, patience: float = 0.0) -> None:
        run = self.run
        found = evaluate_here(self._neighbourhood, run.rounds - 1, self.timeouts.deadline, patience)
        if self._stopping:
            return  # nobody had time to answer
        record = {"epoch": run.epoch, "round": run.rounds, **found}
        record |= {key: mean(values) for key, values in run.totals.items()}
        record |= {"bytes_sent": run.ledger.bytes_sent()}
        run.totals = {}
        run.metrics.append(record)
        append_record(self.out / METRICS, record)

    def _part(self) -> None:
        """Stay until the neighbours have what they need of this agent."""
        hood = self._neighbourhood
        hood.finished = True
        hood.greet(hood.met.keys())
        end = time.monotonic() + self.timeouts.deadline
        while time.monotonic() < end and not self._stopping:
            news = self._exchange.events
            hood.attend()
            if all(hood.says(j, FINISHED) for j in hood.awaited):
                break
            self._exchange.wait(0.2, since=news)
        self._exchange.flush()
