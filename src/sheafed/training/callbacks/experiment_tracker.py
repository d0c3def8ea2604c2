"""What trackers of experiments share: every evaluation is logged once, to one run."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sheafed.atomic_io import make_directory, write_atomically
from sheafed.checkpointing.run_directory import TRACKING
from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record
from sheafed.training.run_identity import flatten

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

Status = Literal["finished", "failed", "killed"]


class ExperimentTracker(Callback):
    """Logs the settings of a training, its evaluations with the epoch as step, and how it ended.

    The run directory remembers the run of the service and the last round that was logged. A
    resumed training goes on in the same run, and what it measures again is not logged again.
    Without a run directory every training is a new run.
    """

    service: ClassVar[str]

    @abstractmethod
    def open_run(self, network: Network, run_id: str | None) -> str:
        """Begin a run, or go on with this one; return its id."""

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send some values to the run."""

    @abstractmethod
    def close_run(self, status: Status) -> None:
        """End the run."""

    def on_start(self, network: Network) -> None:
        self._path = None if network.out is None else network.out / TRACKING
        self._status: Status = "finished"
        before = _read(self._path).get(self.service, {})
        self._round = before.get("round", 0)
        self._run_id = self.open_run(network, before.get("run_id"))
        self._remember()
        for record in network.history.records:
            self._log_once(record)

    def on_evaluation(self, network: Network, record: Record) -> bool:
        self._log_once(record)
        return False

    def on_exception(self, network: Network, error: BaseException) -> None:
        self._status = "failed" if isinstance(error, Exception) else "killed"

    def on_end(self, network: Network) -> None:
        self.close_run(self._status)

    def _log_once(self, record: Record) -> None:
        if record["round"] > self._round:
            self.log(scalars(record), record["epoch"])
            self._round = record["round"]
            self._remember()

    def _remember(self) -> None:
        if self._path is not None:
            own = {self.service: {"run_id": self._run_id, "round": self._round}}
            content = json.dumps(_read(self._path) | own, indent=2)
            make_directory(self._path.parent)
            write_atomically(self._path, content.encode())


def scalars(record: Record) -> dict[str, float]:
    """Return the numbers of a record by their paths; what could not be measured is left out.

    >>> scalars({"loss": 0.5, "oracle_accuracy": None, "agents": {"oslo": {"loss": 0.25}}})
    {'loss': 0.5, 'agents/oslo/loss': 0.25}
    """
    return {k: v for k, v in flatten(record, "/").items() if isinstance(v, int | float)}


def _read(path: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if path is not None and path.exists():
        found = json.loads(path.read_text())
    return found
