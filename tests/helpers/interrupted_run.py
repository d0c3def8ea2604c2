"""Start trainings again and again, and kill them at random: interrupted_run OUT KILLS CASE...

Each attempt is a process of its own, forked where torch is loaded and warm, which resumes what
the attempt before has left. Prints how many attempts of each case were killed before their end.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

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
    """Return how many of the attempts were killed."""
    start(case, epochs=1)
    before = time.monotonic()
    start(case)
    duration = time.monotonic() - before
    moments = [random.uniform(0, 0.5 * duration) for _ in range(kills)]
    return sum(attempt(case, out, moment) for moment in moments)


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, kills, cases = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    print(json.dumps({case: kill(case, out / case, kills) for case in cases}))
