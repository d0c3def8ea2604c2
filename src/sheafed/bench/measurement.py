"""Measurements against targets, and how they are taken."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import pi, sqrt
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from statistics import median, stdev
from typing import Any

import torch

from sheafed.errors import BenchError
from sheafed.training.summary import peak_memory

PRELOADED = ["sheafed.bench.running", "torch._dynamo"]


@dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    target: int
    """Its number in docs/performance.md."""
    what: str
    bound: float
    measured: float
    at_most: bool = True
    """Whether the bound is an upper one."""
    unit: str = "times"
    noise: float | None = None
    """The standard error of what was measured, by the turns of its run; None if it was one."""
    raw: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_turns(
        cls, target: int, what: str, bound: float, values: Sequence[float], **others: Any
    ) -> Measurement:
        """Return the median of what each turn gave, with the noise of it."""
        noise = standard_error(values)
        return cls(target, what, bound, median(values), noise=noise, **others)

    @property
    def verdict(self) -> str:
        """`met` or `missed`."""
        met = self.measured <= self.bound if self.at_most else self.measured >= self.bound
        return "met" if met else "missed"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "target": self.target,
            "what": self.what,
            "bound": self.bound,
            "at_most": self.at_most,
            "measured": self.measured,
            "noise": self.noise,
            "unit": self.unit,
            "verdict": self.verdict,
            "raw": dict(self.raw),
        }


def interleaved(
    tasks: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Return the CPU seconds of each task, run in turn, so that a busy machine slows all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warm_up + repeats):
        for name, task in tasks.items():
            before = time.process_time()
            task()
            if turn >= warm_up:
                seconds[name].append(time.process_time() - before)
    return seconds


def ratios(seconds: Mapping[str, list[float]], one: str, other: str) -> list[float]:
    """Return the time of one task over that of another, in each turn."""
    return [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]


def standard_error(values: Sequence[float]) -> float | None:
    """Return that of the median of some values, as if they were normal; None for a single one."""
    return None if len(values) < 2 else stdev(values) * sqrt(pi / 2 / len(values))


def fresh_processes(count: int | None = None) -> ProcessPoolExecutor:
    """Return workers with one thread each, as many as there are cores by default.

    Every task gets a new process, in which the libraries are loaded already.
    """
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    context.set_forkserver_preload(PRELOADED)
    return ProcessPoolExecutor(
        count,
        context,
        initializer=torch.set_num_threads,
        initargs=(1,),
        max_tasks_per_child=1,
    )


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    peak = peak_memory()
    if peak is None:
        raise BenchError("this system does not tell a process its peak memory; run it on Linux")
    return peak


def describe_machine() -> dict[str, str | int]:
    """Return the processor and the versions that a measurement depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
