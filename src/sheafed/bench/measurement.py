"""What a benchmark says: a target, what was measured, and the raw figures behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any


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
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`ok` or `short`."""
        fine = self.measured <= self.bound if self.at_most else self.measured >= self.bound
        return "ok" if fine else "short"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "target": self.target,
            "what": self.what,
            "bound": self.bound,
            "at_most": self.at_most,
            "measured": self.measured,
            "unit": self.unit,
            "verdict": self.verdict,
            "raw": dict(self.raw),
        }


def interleaved(
    tasks: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Return the CPU seconds of each task, taken in turn, so that a busy machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warm_up + repeats):
        for name, task in tasks.items():
            before = time.process_time()
            task()
            if turn >= warm_up:
                seconds[name].append(time.process_time() - before)
    return seconds


def ratio(seconds: Mapping[str, list[float]], one: str, other: str) -> float:
    """Return the median, over the turns, of the time of one task over that of another."""
    return median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
