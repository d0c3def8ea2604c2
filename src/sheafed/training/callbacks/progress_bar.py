"""Progress on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn

from sheafed.metrics.metric import describe_metrics
from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

NOTEBOOK_SECONDS = 0.2
"""The shortest time between two updates of a notebook, each of which is a message to a browser."""


class ProgressBar(Callback):
    """Epochs, metrics, bytes and the time left.

    `sheafed.train` adds one where standard error is a terminal, and in notebooks. One that you
    give yourself also writes its last state to a file.

    Args:
        console: where it is drawn; standard error by default, or the output of a notebook's cell.
    """

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            # Lines that are printed meanwhile appear above the bar, but files get them as they are.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._cell = _NotebookCell() if console.is_jupyter else None
        self._state = "private - communicated -"

    def on_start(self, network: Network) -> None:
        self._task = self._bar.add_task(
            network.method.label,
            total=network.history.schedule.total,
            completed=network.history.rounds,
            state="",
        )
        if self._cell is None:
            self._bar.start()
        else:
            self._cell.show(self._bar.tasks[0])

    def on_round(self, network: Network, log: Mapping[str, float]) -> None:
        history = network.history
        state = (
            f"epoch {history.epoch}/{history.schedule.epochs} {self._state} "
            f"{history.ledger.bytes_sent() / 2**20:.1f} MiB"
        )
        self._bar.update(self._task, completed=history.rounds, state=state)
        if self._cell is not None:
            self._cell.update(self._bar.tasks[0])

    def on_evaluation(self, network: Network, record: Record) -> bool:
        self._state = describe_metrics(record)
        self.on_round(network, {})
        return False

    def on_end(self, network: Network) -> None:
        if self._cell is None:
            self._bar.stop()
        else:
            self._cell.show(self._bar.tasks[0])


def is_watched() -> bool:
    """Return whether standard error is a terminal, or this is a notebook."""
    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


class _NotebookCell:
    """A line below a cell; plain HTML, which needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def update(self, task: Task) -> None:
        if time.monotonic() - self._shown >= NOTEBOOK_SECONDS:
            self.show(task)

    def show(self, task: Task) -> None:
        from IPython.display import HTML, display

        content = HTML(_as_html(task))
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)
        self._shown = time.monotonic()


def _as_html(task: Task) -> str:
    left = task.time_remaining
    words = [task.description, task.fields["state"], "" if not left else f"{left:.0f} s left"]
    text = escape(" · ".join(word for word in words if word))
    return f'<div><progress value="{task.completed}" max="{task.total}"></progress> {text}</div>'
