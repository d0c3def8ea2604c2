"""Ending a process cleanly on Ctrl-C, SIGTERM from a supervisor, or a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
)
"""SIGHUP is of Unix, SIGBREAK of Windows."""
GRACE_SECONDS = 60.0
"""For an agent to finish its round before it is killed."""


class GracefulShutdown:
    """Within it, a signal to end calls `action`, which may be replaced, instead of ending.

    Signals that arrived before, while `signals_blocked`, count too. A SIGHUP that is ignored, as
    under nohup, stays ignored.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.requested = False
        """Whether a signal to end has arrived."""

    def __enter__(self) -> GracefulShutdown:
        self._before = {
            number: signal.signal(number, self._handle)
            for number in SIGNALS
            if number.name != "SIGHUP" or signal.getsignal(number) is not signal.SIG_IGN
        }
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, *_: object) -> None:
        self.requested = True
        self.action()


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Delay signals to end, here and in processes started within it.

    Such a process receives them once it enters its own `GracefulShutdown`, and is never ended
    before it can handle them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
