"""What happens beside the training: progress, logs, early stopping."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sheafed.atomic_io import write_atomically
from sheafed.errors import InputError, MissingDependencyError
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class Callback:
    """Does nothing; override what you need."""

    def on_start(self, network: Network) -> None:
        """Before the first round, or before going on after an interruption."""

    def on_round(self, network: Network, log: Mapping[str, float]) -> None:
        """After every round, with the averages over agents."""

    def on_evaluation(self, network: Network, record: Record) -> bool:
        """After every evaluation; True ends the training."""
        return False

    def on_end(self, network: Network) -> None:
        """After the last round, also when an error ended the training."""


class MetricsLog(Callback):
    """A line of JSON per evaluation, on disk as soon as it exists."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_start(self, network: Network) -> None:
        """Write the records so far: lines after the checkpoint will be measured again."""
        write_records(self.path, network.history.records)

    def on_evaluation(self, network: Network, record: Record) -> bool:
        append_record(self.path, record)
        return False


class EarlyStopping(Callback):
    """End when a metric has not improved for some evaluations.

    Args:
        metric: a key of the records. Choose one on validation data.
        patience: evaluations without improvement before training stops.
        margin: the smallest difference that counts as an improvement.
        smaller_is_better: as for a loss or the misalignment.
    """

    def __init__(
        self,
        metric: str = "validation_score",
        patience: int = 10,
        margin: float = 0.0,
        smaller_is_better: bool = False,
    ) -> None:
        if patience < 1:
            raise InputError(f"patience must be at least 1, got {patience}")
        self.metric, self.patience, self.margin = metric, patience, margin
        self.sign = -1 if smaller_is_better else 1

    def on_evaluation(self, network: Network, record: Record) -> bool:
        """Judge by the whole history, so that an interrupted run decides alike."""
        if record.get(self.metric) is None:
            raise InputError(
                f"cannot stop early by {self.metric!r}: the records hold {sorted(record)}; choose "
                "one of them, or give the agents validation data"
            )
        values = [self.sign * r[self.metric] for r in network.history.records]
        best, since = float("-inf"), 0
        for value in values:
            if value > best + self.margin:
                best, since = value, 0
            else:
                since += 1
        return since >= self.patience


class ProgressBar(Callback):
    """Epochs, accuracies, bytes and the time left, on the terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        self._state = "private - communicated -"

    def on_start(self, network: Network) -> None:
        self._task = self._bar.add_task(
            network.method.label,
            total=network.history.schedule.total,
            completed=network.history.rounds,
            state="",
        )
        self._bar.start()

    def on_round(self, network: Network, log: Mapping[str, float]) -> None:
        history = network.history
        state = (
            f"epoch {history.epoch}/{history.schedule.epochs} {self._state} "
            f"{history.ledger.bytes_sent() / 2**20:.1f} MiB"
        )
        self._bar.update(self._task, completed=history.rounds, state=state)

    def on_evaluation(self, network: Network, record: Record) -> bool:
        shown = [record["private_accuracy"], record["communication_accuracy"]]
        private, communicated = ("-" if v is None else f"{v:.3f}" for v in shown)
        self._state = f"private {private} communicated {communicated}"
        self.on_round(network, {})
        return False

    def on_end(self, network: Network) -> None:
        self._bar.stop()


class TensorBoard(Callback):
    """Curves for TensorBoard, which must be installed."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as problem:
            raise MissingDependencyError(
                "TensorBoard is not installed; get it with: pip install 'sheafed[tensorboard]'"
            ) from problem
        self._writer = SummaryWriter(str(directory))

    def on_evaluation(self, network: Network, record: Record) -> bool:
        for key, value in record.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(key, value, network.history.epoch)
        self._writer.flush()
        return False

    def on_end(self, network: Network) -> None:
        self._writer.close()


class Started:
    """Runs `on_start` of some callbacks, and `on_end` of them however the training ends."""

    def __init__(self, callbacks: list[Callback], network: Network) -> None:
        self._callbacks, self._network = callbacks, network
        self._ends = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as started:  # ends those that have started if one does not
            for callback in self._callbacks:
                callback.on_start(self._network)
                started.callback(callback.on_end, self._network)
            self._ends = started.pop_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.__exit__(kind, error, trace)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Replace what a metrics log holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, b"".join(map(_line, records)))


def append_record(path: Path, record: Record) -> None:
    """Add a line to a metrics log, on disk when this returns."""
    with path.open("ab") as file:
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
