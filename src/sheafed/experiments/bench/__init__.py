"""The targets of docs/performance.md, each measured in a process of its own."""

from collections.abc import Callable, Sequence

from sheafed.experiments.bench.evaluations import evaluations
from sheafed.experiments.bench.frugality import frugality
from sheafed.experiments.bench.growth import growth
from sheafed.experiments.bench.maps import map_refresh
from sheafed.experiments.bench.measurement import Measurement
from sheafed.experiments.bench.memory import memory
from sheafed.experiments.bench.processes import throughput
from sheafed.experiments.bench.rounds import layout, overhead

AGENTS = (15, 50, 200, 1000)
Benchmark = Callable[[bool, Sequence[int]], list[Measurement]]

BENCHMARKS: dict[str, Benchmark] = {
    "overhead": lambda quick, _: overhead(2 if quick else 5),
    "layout": lambda quick, _: layout(3 if quick else 8),
    "processes": lambda quick, _: throughput(1 if quick else 2, use=0.05 if quick else 0.12),
    "evaluation": lambda quick, _: evaluations(1 if quick else 2),
    "maps": lambda quick, _: map_refresh(5 if quick else 20),
    "growth": lambda quick, agents: growth(agents, 2, least=0 if quick else 800),
    "bytes": lambda quick, _: frugality([0] if quick else [0, 1, 2], epochs=3 if quick else None),
    "memory": lambda quick, _: memory(2 if quick else 10),
}
"""By name; each takes whether to be quick, and how many agents to grow to."""
