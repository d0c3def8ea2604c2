"""Processes that save a checkpoint again and again, and are killed at random moments."""

import os
import random
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint


def generation(number: int) -> dict[str, Any]:
    shapes = [(300_000,), (200, 300), (7,)]
    return {"number": number, "tensors": [torch.full(shape, float(number)) for shape in shapes]}


def save_for_ever(path: Path, last: int, report: int) -> None:
    """Report the last number that was saved, by others at first."""
    for number in count(last):
        if number > last:
            save_checkpoint(path, generation(number))
        os.write(report, f"{number}\n".encode())


def kill_writers(path: Path, kills: int) -> list[dict[str, Any]]:
    """Fork writers of `path` and kill them; return what each kill left."""
    moments = random.Random(0)
    found, saved = [], 0
    save_checkpoint(path, generation(saved))
    before = time.monotonic()
    save_checkpoint(path, generation(saved))
    duration = time.monotonic() - before
    for _ in range(kills):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            save_for_ever(path, saved, write)
        os.close(write)
        with os.fdopen(read) as reports:
            reports.readline()  # it runs
            time.sleep(moments.uniform(0.0, 4 * duration))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            reported = max([saved, *map(int, reports.read().split())])
        tree = load_checkpoint(path)
        saved = tree["number"]
        values = {value for tensor in tree["tensors"] for value in tensor.unique().tolist()}
        left = sorted(os.listdir(path.parent))
        found.append({"reported": reported, "saved": saved, "values": [*values], "left": left})
    return found
