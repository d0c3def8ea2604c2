"""The hooks of a training, and how they are called from its start to its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

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

    def on_exception(self, network: Network, error: BaseException) -> None:
        """When an error or an interruption ended the training; `on_end` follows."""

    def on_end(self, network: Network) -> None:
        """After the last round, also when an error ended the training."""


class Started:
    """Runs `on_start` of some callbacks, and `on_end` of them however the training ends."""

    def __init__(self, callbacks: list[Callback], network: Network) -> None:
        self._callbacks, self._network = callbacks, network
        self._ends = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as started:  # ends those that have started if one does not
            for callback in self._callbacks:
                callback.on_start(self._network)
                started.push(partial(self._end, callback))
            self._ends = started.pop_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.__exit__(kind, error, trace)

    def _end(
        self,
        callback: Callback,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                callback.on_exception(self._network, error)
        finally:
            callback.on_end(self._network)
