"""Start trainings again and again, and kill them at random.

Each attempt is a process of its own, forked where torch is loaded and warm, which resumes what
the attempt before has left.
"""

import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.federations import start


def attempt(case: str, out: Path, seconds: float) -> bool:
    """Return whether the training was killed, and had not ended by itself."""
    child = os.fork()
    if child == 0:
        start(case, out, resume=True)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the training failed"
    return os.WIFSIGNALED(status)


def kill(case: str, out: Path, kills: int) -> int:
    """Return how many of the attempts were killed before their end."""
    start(case, epochs=1)
    before = time.monotonic()
    start(case)
    duration = time.monotonic() - before
    moments = [random.uniform(0, 0.5 * duration) for _ in range(kills)]
    return sum(attempt(case, out, moment) for moment in moments)


def kill_all(out: Path, kills: int, cases: Iterable[str]) -> dict[str, int]:
    """Return the same for each case, which has a directory of its own."""
    return {case: kill(case, out / case, kills) for case in cases}
