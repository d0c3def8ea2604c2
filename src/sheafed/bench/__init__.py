"""The targets of docs/performance.md, each measured in a process of its own."""

import sys
import time
from collections.abc import Callable, Sequence

from sheafed.bench.bytes import CASES, frugality
from sheafed.bench.evaluations import evaluations
from sheafed.bench.maps import map_refresh
from sheafed.bench.measurement import Measurement
from sheafed.bench.memory import memory
from sheafed.bench.processes import throughput
from sheafed.bench.rounds import layout, overhead
from sheafed.bench.scaling import growth
from sheafed.training.allocator import keep_freed_memory

AGENTS = (15, 50, 200, 1000)
Benchmark = Callable[[bool, Sequence[int]], list[Measurement]]

BENCHMARKS: dict[str, Benchmark] = {
    "processes": lambda quick, _: throughput(1 if quick else 2, use=0.05 if quick else 0.2),
    "overhead": lambda quick, _: overhead(1 if quick else 5),
    "bytes": lambda quick, _: frugality(["digits"], [0]) if quick else frugality(CASES, [0, 1, 2]),
    "evaluation": lambda quick, _: evaluations(1 if quick else 2),
    "layout": lambda quick, _: layout(2 if quick else 10),
    "maps": lambda quick, _: map_refresh(5 if quick else 20),
    "growth": lambda quick, agents: growth(agents, 1, least=200 if quick else 400),
    "memory": lambda quick, _: memory(*((1, 700) if quick else (4, 7000))),
}
"""By name; each takes whether to be quick, and how many agents to grow to."""


def measure(name: str, quick: bool, agents: Sequence[int]) -> list[Measurement]:
    """Take one benchmark, in a process that has nothing else to do."""
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    keep_freed_memory()
    found = BENCHMARKS[name](quick, agents)
    print(f"{name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found
