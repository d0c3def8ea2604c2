"""Runs benchmarks, each in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from sheafed.bench.bytes import CASES, byte_savings
from sheafed.bench.evaluation import evaluation
from sheafed.bench.maps import map_refresh
from sheafed.bench.measurement import Measurement, fresh_processes
from sheafed.bench.memory import memory
from sheafed.bench.processes import throughput
from sheafed.bench.rounds import layout, overhead
from sheafed.bench.scaling import scaling
from sheafed.errors import BenchError
from sheafed.training.allocator import keep_freed_memory

BENCHMARKS: dict[str, Callable[[bool, Sequence[int]], list[Measurement]]] = {
    "processes": lambda quick, _: throughput(1 if quick else 2, fraction=0.05 if quick else 0.2),
    "overhead": lambda quick, _: overhead(1 if quick else 5),
    "bytes": lambda quick, _: byte_savings(*((["digits"], [0]) if quick else (CASES, [0, 1, 2]))),
    "evaluation": lambda quick, _: evaluation(1 if quick else 2),
    "layout": lambda quick, _: layout(2 if quick else 10),
    "maps": lambda quick, _: map_refresh(5 if quick else 20),
    "scaling": lambda quick, sizes: scaling(sizes, 1, least=200 if quick else 400),
    "memory": lambda quick, _: memory(*((1, 700) if quick else (4, 7000))),
}
"""By name; each takes whether to be quick, and the network sizes that `scaling` compares."""

SIZES, QUICK_SIZES = (15, 50, 200, 1000), (15, 200)
WALL_CLOCK = "processes"
"""The benchmark that measures elapsed time, and so needs the machine to itself."""


def run_benchmarks(
    names: Sequence[str] = (), *, quick: bool = False, sizes: Sequence[int] | None = None
) -> list[Measurement]:
    """Run some benchmarks, all by default.

    Args:
        names: keys of `BENCHMARKS`.
        quick: with fewer repeats, and two benchmarks at a time.
        sizes: numbers of agents that `scaling` compares.
    """
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        choices = ", ".join(BENCHMARKS)
        raise BenchError(f"unknown benchmark {', '.join(unknown)}; choose from {choices}")
    sizes = sizes or (QUICK_SIZES if quick else SIZES)
    if min(sizes) < 5:
        raise BenchError(f"sizes of networks must be at least 5, got {min(sizes)}")
    chosen = list(names or BENCHMARKS)
    found = []
    with fresh_processes(2 if quick else 1) as pool:
        # The others count CPU seconds, which concurrent work disturbs less.
        for group in (
            [name for name in chosen if name == WALL_CLOCK],
            [name for name in chosen if name != WALL_CLOCK],
        ):
            running = [pool.submit(_measure, name, quick, sizes) for name in group]
            found += [each for benchmark in running for each in benchmark.result()]
    return sorted(found, key=lambda measurement: measurement.target)


def _measure(name: str, quick: bool, sizes: Sequence[int]) -> list[Measurement]:
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    keep_freed_memory()
    found = BENCHMARKS[name](quick, sizes)
    print(f"{name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found
