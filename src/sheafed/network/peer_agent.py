"""One agent whose neighbours are other processes, which may be slow, absent or gone.

With no fault and a generous deadline, weights and metrics are those of `train`.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from pathlib import Path

import networkx as nx

from sheafed.atomic_io import write_atomically
from sheafed.checkpointing.checkpoint import save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT, LAST, METRICS, SUMMARY
from sheafed.errors import CheckpointError, HandshakeError, RunExistsError
from sheafed.methods.handshake import finish_handshake
from sheafed.methods.node import Method, Node
from sheafed.network.deadline_policy import DeadlinePolicy, Timeouts
from sheafed.network.log_limits import limited_logs
from sheafed.network.neighbourhood import FINISHED, Neighbourhood
from sheafed.network.peer_checkpoint import restore, save
from sheafed.network.peer_metrics import PeerMetricsLog
from sheafed.network.peer_summary import summarise_peer
from sheafed.network.status import STATUS, State, Status, StatusFile
from sheafed.training.callbacks import Started
from sheafed.training.history import RunHistory, Schedule, Totals
from sheafed.training.live_network import Network
from sheafed.training.metadata import agent_metadata
from sheafed.training.process_group import SingleProcess
from sheafed.training.round_loop import Trainer
from sheafed.training.run_lock import run_lock
from sheafed.training.run_settings import run_conditions
from sheafed.transport.zenoh.transport import ZenohTransport

SAVE_PATIENCE = 600.0
"""Seconds for which an agent trains on while no checkpoint can be written."""
TELL_SECONDS = 20.0
"""After so long without some neighbours the log says why links to them fail."""
QUIET_SECONDS = 2.0
"""An agent that returns has met all present neighbours if no other has appeared for so long."""

logger = logging.getLogger("sheafed.network")


def check_unused(out: Path, resume: bool) -> None:
    """Raise if a directory holds a run that is not to be continued."""
    if (out / CHECKPOINT).exists() and not resume:
        raise RunExistsError(
            f"{out} already holds a run; give --resume (in Python resume=True) to continue it, or "
            "choose another directory"
        )


class PeerAgent:
    """One agent on its network.

    Args:
        node: the agent's node, before the handshake.
        transport: its links; kept open, for the caller to close.
        method: the method of the node.
        epochs: the length of the training.
        out: a directory for metrics, checkpoint, weights, status and summary.
        timeouts: how long to wait for other agents.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
        take_over: whether to replace another live process of the same name, which then ends;
            otherwise it is this one that ends, by a `DuplicateAgentError`.
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
        take_over: bool = False,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.state: State = "waiting"
        self._unsaved: Totals | None = None
        self._unsaved_since = 0.0
        schedule = Schedule(epochs, node.context.rounds_per_epoch, evaluate_every, checkpoint_every)
        self.network = Network(
            nodes={node.name: node},
            metadata={node.name: agent_metadata(node.agent, rank=0)},
            graph=nx.Graph([(node.name, j) for j in node.neighbours]),
            pilots=node.context.pilots,
            method=method,
            history=RunHistory(node.context.seed, schedule, transport.ledger),
            group=SingleProcess(),
        )
        self.network.graph.add_node(node.name)
        self.node, self.out = node, out
        self._hood = Neighbourhood(node, transport, schedule.total, take_over)
        self.policy = DeadlinePolicy(self._hood, self.timeouts, schedule.total)

    def stop(self) -> None:
        """End after the current round, waiting for no neighbour. Safe in a signal handler."""
        self.policy.stop()

    def train(self, resume: bool = False) -> Network:
        """Train to the end, or until `stop`."""
        with run_lock(self.out):
            return self._run(resume)

    def _run(self, resume: bool) -> Network:
        history, checkpoint = self.network.history, self.out / CHECKPOINT
        check_unused(self.out, resume)
        fresh = not checkpoint.exists()
        with (
            limited_logs(),
            StatusFile(self.out / STATUS, self.status) as status,
            self.network.training_context(),
        ):
            try:
                totals: Totals = {}
                if not fresh:
                    totals = restore(checkpoint, self.network, self.policy)
                    history.check_length()
                    status.write()  # with the round that it continues from
                self._join(fresh)
                if not self.policy.stopping:
                    self._train(totals, fresh)
                self.state = "stopped" if self.policy.stopping else "finished"
            except BaseException:
                self.state = "failed"
                raise
        return self.network

    def status(self) -> Status:
        history = self.network.history
        last, metric = history.last or {}, self.node.agent.metric.name
        present = self._hood.transport.present
        absent = set(self.node.neighbours) - present
        return Status(
            agent=self.node.name,
            state=self.state,
            round=history.rounds,
            rounds=history.schedule.total,
            metric=metric,
            private=last.get(f"private_{metric}"),
            communication=last.get(f"communication_{metric}"),
            bytes_sent=history.ledger.bytes_sent(),
            present=sorted(present),
            # One that has finished is not missing.
            absent=sorted(j for j in absent if not self._hood.announces(j, FINISHED)),
            rejected=dict(self._hood.transport.rejected + Counter(self.node.rejected)),
            unknown_peers=dict(self._hood.transport.unknown_peers),
            certificate=self._hood.transport.certificate_state,
            refused=dict(self._hood.refused),
            failed_connections=dict(self._hood.transport.failed_connections),
        )

    def _join(self, fresh: bool) -> None:
        """Shake hands with the neighbours and learn which round they are in."""
        hood, neighbours = self._hood, set(self.node.neighbours)
        if fresh and (revoked := sorted(neighbours & hood.transport.revoked)):
            raise HandshakeError(
                f"the neighbours {revoked} of agent {self.node.name!r} are revoked; remove them "
                "from the graph"
            )
        hood.begin(self.network.history.rounds)
        began = quiet_since = time.monotonic()
        patience = self.timeouts.join if fresh else self.timeouts.deadline
        known, told = -1, False
        while not self.policy.stopping:
            news, now = hood.transport.events, time.monotonic()
            hood.process_hellos()
            if len(hood.met) != known:
                known, quiet_since = len(hood.met), now
                missing = sorted(neighbours - set(hood.met))
                logger.info(
                    "%s: handshake done with %s, waiting for %s",
                    self.node.name,
                    sorted(hood.met),
                    missing,
                )
            if now - began > TELL_SECONDS and not told and neighbours - hood.met.keys():
                told = True
                for problem in hood.transport.link_problems():
                    logger.warning("%s has no link to %s", self.node.name, problem)
            returned = not fresh and known > 0 and now - quiet_since > QUIET_SECONDS
            if neighbours <= hood.met.keys() or returned or now - began > patience:
                break
            hood.transport.wait(0.2, since=news)
        if fresh and not self.policy.stopping:
            if hood.refused:
                raise HandshakeError("; ".join(hood.refused.values()))
            if missing := sorted(neighbours - hood.met.keys()):
                raise self._missing(missing)
            finish_handshake(self.node, hood.met)
            self._save({})

    def _missing(self, neighbours: list[str]) -> HandshakeError:
        """Return the error that names absent neighbours, with what is known of links to them."""
        transport = self._hood.transport
        known = transport.link_problems()
        if count := transport.failed_connections.total():
            known.append(f"{count} connections to {self.node.name!r} came to nothing")
        return HandshakeError(
            f"agent {self.node.name!r} got no hello from its neighbours {neighbours}: they are not "
            "there, or refuse each other's certificates; start them, give all agents certificates "
            "of one authority, or remove them from the graph"
            + (f" ({'; '.join(known)})" if known else "")
        )

    def _train(self, totals: Totals, fresh: bool) -> None:
        self.state = "training"
        if fresh:  # neighbours may still be waiting for theirs
            self.policy.first_deadline = self.timeouts.join
        self.network.history.note_conditions(
            run_conditions(self.network, oracle=False, vectorize=False)
        )
        metrics = PeerMetricsLog(self.out / METRICS)
        trainer = Trainer(
            self.network,
            self.policy,
            oracle=False,
            observers=[metrics],
            save=self._save,
            totals=totals,
        )
        with Started([metrics], self.network):
            trainer.run()
        if self._unsaved is not None:  # the last attempt, before the agent was told to stop
            self._save(self._unsaved)
        if not self.policy.stopping:
            self._wait_for_final_evaluations()
        save_checkpoint(self.out / LAST, self.node.agent.weights())
        summary = summarise_peer(self.network, self.node, self.policy)
        write_atomically(self.out / SUMMARY, json.dumps(summary, indent=2).encode())

    def _save(self, totals: Totals) -> None:
        """Write a checkpoint; training goes on for some time if the system does not let it."""
        history, now = self.network.history, time.monotonic()
        try:
            save(self.out / CHECKPOINT, self.network, self.policy, totals)
        except CheckpointError as problem:
            if self._unsaved is None:
                self._unsaved_since = now
            self._unsaved = totals
            last = history.rounds in (0, history.schedule.total) or self.policy.stopping
            persists = now - self._unsaved_since > SAVE_PATIENCE
            if last or persists or not isinstance(problem.__cause__, OSError):
                raise
            logger.error("%s trains on although it %s", self.node.name, problem)
        else:
            self._unsaved = None

    def _wait_for_final_evaluations(self) -> None:
        """Stay until the neighbours have evaluated with this agent."""
        hood = self._hood
        hood.finished = True
        hood.send_hello(hood.met.keys())
        end = time.monotonic() + self.timeouts.deadline
        while time.monotonic() < end and not self.policy.stopping:
            news = hood.transport.events
            hood.process_hellos()
            if all(hood.announces(j, FINISHED) for j in hood.awaited):
                break
            hood.transport.wait(0.2, since=news)
        hood.transport.flush()
