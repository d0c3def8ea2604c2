"""The speed-up of two processes over one."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from sheafed.bench.measurement import Measurement
from sheafed.errors import BenchError

SAME = ("metrics.jsonl", "last.safetensors")


def throughput(repeats: int, fraction: float) -> list[Measurement]:
    """Compare the elapsed time of an epoch of the 15 agents on MNIST in one process and in two."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    results = set()
    with tempfile.TemporaryDirectory() as directory:
        for repeat in range(repeats):
            # In alternating order, so that a machine that slows down does not favour the first.
            for processes in (1, 2) if repeat % 2 == 0 else (2, 1):
                out = Path(directory) / f"{processes}-{repeat}"
                seconds[processes].append(_epoch(processes, fraction, out))
                results.add(tuple((out / name).read_bytes() for name in SAME))
    if len(results) != 1:
        raise BenchError("results of one and of two processes differ; they must be equal")
    turns = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    what = "throughput of two processes over one, 15 agents, same results"
    raw = {f"{count} processes": times for count, times in seconds.items()}
    return [Measurement.of_turns(3, what, 1.7, turns, at_most=False, raw=raw)]


def _epoch(processes: int, fraction: float, out: Path) -> float:
    """Return the seconds of an epoch, without the start of the processes."""
    command = [sys.executable, "-P", "-m", "sheafed", "run", "fifteen", "--out", str(out)]
    changes = (
        "training.epochs=1",
        "training.oracle=false",
        f"data.train_fraction={fraction}",
        "data.pilot_fraction=0.01",
    )
    few_tests = "data.split=[0.98, 0.01, 0.01]"  # to measure rounds, not evaluations
    for change in (*changes, few_tests):
        command += ["--set", change]
    command += ["--processes", str(processes)] if processes > 1 else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"a run failed: {done.stderr.strip()[-500:]}")
    return float(json.loads((out / "summary.json").read_text(encoding="utf-8"))["seconds"])
