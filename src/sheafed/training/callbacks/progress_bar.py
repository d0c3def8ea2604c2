"""Progress on the terminal or in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


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
