"""Bounds on what an agent logs: a neighbour must not be able to fill the disk.

What a neighbour sends can appear in a line, and how often it sends decides how often there is one.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from sheafed.atomic_io import make_directory

MAX_LINE = 500
"""Characters of a line; the rest is left out."""
MAX_LINES, PERIOD_SECONDS = 100, 60.0
"""So many lines of one kind are logged per period; the others are counted."""
MAX_FILE_BYTES = 10 << 20
CHECK_SECONDS = 1.0
LOGGERS = ("sheafed.network", "sheafed.transport")


class LogLimit(logging.Filter):
    """Shortens long lines, and leaves out lines of a kind that are too many.

    Lines are of one kind if they have the same format. The first one of a new period says how many
    were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}  # by format: begin of the period, lines

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg), self._clock()
        began, lines = self._seen.get(kind, (now, 0))
        left_out = 0
        if now - began >= PERIOD_SECONDS:
            began, lines, left_out = now, 0, max(0, lines - MAX_LINES)
        self._seen[kind] = began, lines + 1
        if lines >= MAX_LINES:
            return False
        text = record.getMessage()
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}... ({len(text)} characters)"
        if left_out:
            text += f" ({left_out} similar lines left out)"
        record.msg, record.args = text, ()
        return True


@contextmanager
def limited_logs() -> Iterator[None]:
    """Limit what the loggers of this package and of the transport write, to whichever handlers."""
    limit, loggers = LogLimit(), [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(limit)


@contextmanager
def output_into(path: Path, limit: int = MAX_FILE_BYTES) -> Iterator[None]:
    """Send the output of this process, also that of Zenoh, into a file of bounded size.

    A file that has become too large is copied to `NAME.1`, which is replaced, and emptied: it is
    not renamed, because all writers of the process keep it open.
    """
    make_directory(path.parent, private=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    ended = Event()

    def watch() -> None:
        while not ended.wait(CHECK_SECONDS):
            rotate(path, limit)

    thread = Thread(target=watch, name="log rotation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def rotate(path: Path, limit: int) -> None:
    """Copy a file to `NAME.1` and empty it if it has more bytes than the limit."""
    try:
        if path.stat().st_size > limit:
            try:
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            finally:  # on a full disk the earlier lines are lost, and the space is not
                os.truncate(path, 0)
    except OSError as problem:
        logging.getLogger(LOGGERS[0]).warning("the log cannot be rotated for now: %s", problem)
