"""What a process does when it is asked to end: by Ctrl-C, by its supervisor, by a hang-up."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDING = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class GracefulShutdown:
    """Within it, `act` is called when the process is asked to end; `act` may be replaced.

    So it is if that was asked before, while signals were held back. A hang-up that is ignored, as
    under nohup, stays ignored.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.asked = False

    def __enter__(self) -> GracefulShutdown:
        self._before = {
            number: signal.signal(number, self._ask)
            for number in ENDING
            if number.name != "SIGHUP" or signal.getsignal(number) is not signal.SIG_IGN
        }
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, *_: object) -> None:
        self.asked = True
        self.act()


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold signals back; a process started meanwhile gets its own in `GracefulShutdown`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
