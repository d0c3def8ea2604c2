"""The history of a training: how far it is, its records, and the bytes that were sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sheafed.errors import InputError
from sheafed.evaluation.result import Evaluation
from sheafed.training.overview import history_as_text
from sheafed.training.plots import plot_history
from sheafed.transport import Ledger
from sheafed.vectorized import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
Totals = dict[str, list[float]]
"""The logged values of each round since the last evaluation, by key."""


@dataclass(frozen=True)
class Schedule:
    """How long a training lasts, and when it is evaluated and saved.

    Args:
        epochs: the length of the training.
        rounds_per_epoch: the rounds of one epoch.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
    """

    epochs: int
    rounds_per_epoch: int
    evaluate_every: int = 1
    checkpoint_every: int | None = None

    @property
    def total(self) -> int:
        """The rounds of the whole training."""
        return self.epochs * self.rounds_per_epoch

    def is_evaluated(self, rounds: int) -> bool:
        epoch, rest = divmod(rounds, self.rounds_per_epoch)
        return rest == 0 and (epoch % self.evaluate_every == 0 or epoch == self.epochs)

    def is_saved(self, rounds: int) -> bool:
        return rounds % (self.checkpoint_every or self.rounds_per_epoch) == 0


@dataclass(repr=False)
class RunHistory:
    """What a training has produced so far; free of models and data.

    - `records`: a dict per evaluation: `epoch`, `round`, the averages over agents, e.g.
      `private_accuracy`, `communication_accuracy`, `validation_score`, the logged losses, and under
      `agents` the values of each. They are the lines of `metrics.jsonl`.
    - `last`: the latest record, None before the first evaluation; `best`: that of the best
      validation score.
    - `evaluation`: the latest test values in detail, `evaluation.private[name]` and
      `evaluation.communication[sender, receiver]`; None for a network that was loaded.
    - `stopped`: whether a callback, as `EarlyStopping`, has ended the training before its last
      epoch; `Network.train` goes on all the same.
    """

    seed: int
    schedule: Schedule
    ledger: Ledger
    rounds: int = 0
    """Rounds done."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether a callback ended the training early."""
    records: list[Record] = field(default_factory=list)
    """One record per evaluation; free of times, so equal runs have equal records."""
    evaluation: Evaluation | None = None
    """The latest, in detail."""
    errors: frozenset[str] = frozenset()
    """The metrics of which a smaller value is better."""
    whitenings: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """At the end: what `compare_whitenings` measured of a method that is aligned afterwards."""
    vectorized: Summary | None = None
    """How many agents take their steps together, and why the others do not; None if vectorisation
    is off."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """The settings of now that a resumed run may change, by name."""
    changes: list[Record] = field(default_factory=list)
    """Those of them that did change, with the round, and the values before and after."""

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.rounds // self.schedule.rounds_per_epoch

    @property
    def last(self) -> Record | None:
        """The latest record."""
        return self.records[-1] if self.records else None

    @property
    def best(self) -> Record | None:
        """The record with the best validation score; None if agents have no validation data."""
        scored = [record for record in self.records if record.get("validation_score") is not None]
        return max(scored, key=lambda record: record["validation_score"], default=None)

    def plot(self) -> Figure:
        """Return a matplotlib figure: the curves of private, communication and oracle values over
        epochs, and a heat map of the last evaluation by sender and receiver.

        It belongs to no `pyplot` window: a notebook shows it as the value of a cell, and
        `figure.savefig(path)` writes it to a file.
        """
        return plot_history(self)

    def __repr__(self) -> str:
        return history_as_text(self)

    def check_length(self) -> None:
        """Raise if more rounds are done than the whole training is to have."""
        if self.rounds > self.schedule.total:
            raise InputError(
                f"{self.epoch} epochs of this run are done, {self.schedule.epochs} were asked for; "
                "give at least as many"
            )

    def note_conditions(self, now: Mapping[str, Any]) -> None:
        """Take the settings from here on, and record those that are others than before."""
        for setting, value in now.items():
            before = self.conditions.get(setting, value)
            if before != value:
                change = {"setting": setting, "before": before, "after": value}
                self.changes.append({"round": self.rounds, **change})
        self.conditions = dict(now)

    def state(self, totals: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Return what a checkpoint keeps, with the logs since the last evaluation."""
        return {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "metrics": self.records,
            "conditions": self.conditions,
            "changes": self.changes,
            "totals": {key: list(values) for key, values in totals.items()},
            "ledger": dict(self.ledger.state()),
        }

    def load_state(self, state: Mapping[str, Any]) -> Totals:
        """Go on from a checkpoint; return the logs since the last evaluation."""
        self.rounds = state["rounds"]
        self.seconds = state["seconds"]
        self.stopped = state["stopped"]
        self.records = state["metrics"]
        self.conditions, self.changes = state["conditions"], state["changes"]
        self.ledger.restore(state["ledger"])
        totals: Totals = state["totals"]
        return totals
