"""The round loop: one for every method, every transport and every wait policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sheafed.checkpointing.run_directory import BEST
from sheafed.training.callbacks import Callback
from sheafed.training.garbage import existing_objects_kept
from sheafed.training.history import Totals
from sheafed.training.network_file import save_network
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.training.single_round import Logs, average, group_agents, run_round
from sheafed.training.summary import measure
from sheafed.transport import WaitPolicy
from sheafed.vectorized import merge_summaries

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class Trainer:
    """Trains the agents of this process to the end of their schedule.

    Args:
        network: the agents, after the handshake. Its history says where to begin, and by its
            schedule how long to train and when to evaluate and save.
        policy: how to wait for the messages of other agents.
        oracle: also measure oracle accuracy.
        vectorize: compute the steps of agents of one structure at once.
        observers: the callbacks, on rank 0.
        save: writes a checkpoint, if there is a run directory, given the logs since the last
            evaluation.
        totals: these logs, of a run that is resumed.
        interrupted: whether to save and raise `KeyboardInterrupt` before the next round.
    """

    def __init__(
        self,
        network: Network,
        policy: WaitPolicy,
        *,
        oracle: bool,
        vectorize: bool = False,
        observers: Sequence[Callback] = (),
        save: Callable[[Totals], None] = lambda totals: None,
        totals: Totals | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._network, self._history = network, network.history
        self._policy = policy
        self._oracle, self._observers, self._save = oracle, observers, save
        self._totals: Totals = totals or {}
        self._logs: list[Logs] = []
        self._unsaved = False
        self._interrupted = interrupted
        self._vectorize = vectorize
        self.saved: int | None = network.history.rounds or None
        """The round of the last checkpoint, if there is one."""

    def run(self) -> None:
        """Take the rounds that are left, evaluate the last one, and save."""
        with existing_objects_kept(len(self._network.nodes)):
            self._run()

    def _run(self) -> None:
        history, schedule = self._history, self._history.schedule
        began = time.monotonic() - history.seconds
        network = self._network
        grouping = group_agents(network.nodes, network.pilots) if self._vectorize else None
        history.vectorized = None
        if grouping is not None:
            history.vectorized = merge_summaries(network.group.gather(grouping.summary()))
        while history.rounds < schedule.total and not history.stopped:
            if self._interrupted():
                history.seconds = time.monotonic() - began
                if self._unsaved:
                    self._checkpoint()
                raise KeyboardInterrupt
            history.rounds = self._policy.enter_round(history.rounds)
            if self._policy.stopping or history.rounds == schedule.total:
                break
            self._logs.append(run_round(network.nodes, self._policy, history.rounds, grouping))
            history.rounds += 1
            self._unsaved = True
            history.seconds = time.monotonic() - began
            for observer in self._observers:
                observer.on_round(self._network, average(self._logs[-1]))
            if history.rounds < schedule.total:
                if schedule.is_evaluated(history.rounds) and not self._policy.stopping:
                    self._evaluate()
                if schedule.is_saved(history.rounds) and not history.stopped:
                    self._checkpoint()
        is_recorded = (history.last or {}).get("round") == schedule.total
        if history.rounds == schedule.total and not is_recorded and not self._policy.stopping:
            self._policy.enter_round(schedule.total)
            self._evaluate()
        history.seconds = time.monotonic() - began
        if self._unsaved:
            self._checkpoint()

    def _evaluate(self) -> None:
        network, history = self._network, self._history
        fit_post_hoc_maps(network.nodes, self._policy, history.rounds - 1)
        self._gather_logs()
        self._count_bytes()
        record = measure(network, self._policy, self._totals, self._oracle)
        if self._policy.stopping:
            return  # neighbours had no time to answer
        self._totals, self._unsaved = {}, True
        history.records.append(record)
        votes = [observer.on_evaluation(network, record) for observer in self._observers]
        history.stopped = any(network.group.gather(any(votes)))
        if network.out is not None and history.best is record:
            save_network(network, network.out / BEST)

    def _checkpoint(self) -> None:
        self._gather_logs()
        self._count_bytes()
        self._save(self._totals)
        self.saved = self._history.rounds
        self._unsaved = False

    def _gather_logs(self) -> None:
        """Move what all agents have logged, averaged, from the rounds' logs to the totals."""
        for parts in zip(*self._network.group.gather(self._logs), strict=True):
            everything = {name: log for part in parts for name, log in part.items()}
            for key, value in average(dict(sorted(everything.items()))).items():
                self._totals.setdefault(key, []).append(value)
        self._logs.clear()

    def _count_bytes(self) -> None:
        self._network.group.count(self._policy.transport, self._history.ledger)
