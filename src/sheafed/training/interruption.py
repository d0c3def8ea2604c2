"""Ctrl-C in a training: the round ends, what was trained is saved, and the error says where."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import Interrupted
from sheafed.training.history import RunHistory


class Interruption:
    """Within it, a first Ctrl-C is a request to end after the current round; a second one raises.

    Only where Ctrl-C would raise `KeyboardInterrupt`: handlers of others stay, and threads have
    none.

    Args:
        enabled: False leaves everything as it is, e.g. in a cluster, whose ranks end together.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.requested = False
        self._enabled = enabled
        self._installed = False

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._enabled and main and usual:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True
        print("ending after this round; Ctrl-C again ends at once", file=sys.stderr, flush=True)


def interrupted(history: RunHistory, out: Path | None, saved: int | None) -> Interrupted:
    """Return the error that says what a training that was interrupted has left.

    Args:
        history: of the training.
        out: its run directory, if it has one.
        saved: the round of its last checkpoint, if there is one.
    """
    done = f"interrupted after round {history.rounds} of {history.schedule.total}"
    if out is None:
        return Interrupted(f"{done}; nothing was saved, as there is no run directory (out=...)")
    if saved is None or not (out / CHECKPOINT).exists():
        return Interrupted(f"{done}, before the first checkpoint; {out} can be begun anew")
    return Interrupted(
        f"{done}; {out} holds the checkpoint of round {saved}; go on with resume=True",
        checkpoint=saved,
    )
