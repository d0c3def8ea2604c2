"""The figures and tables of the paper's evaluation, each by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sheafed.reproduction import accuracies, bottleneck, memory, shift, tradeoff
from sheafed.reproduction.memory import MemoryPlan
from sheafed.reproduction.plan import AccuracyPlan, Curve
from sheafed.reproduction.tradeoff import TradeoffPlan
from sheafed.sweep.trials import check_seeds

__all__ = ["PLANS", "AccuracyPlan", "Curve", "MemoryPlan", "TradeoffPlan", "reproduce"]

Plan = AccuracyPlan | MemoryPlan | TradeoffPlan
PLANS: dict[tuple[str, str], Callable[[Sequence[int]], Plan]] = {
    ("shift", "quick"): shift.quick,
    ("shift", "paper"): shift.paper,
    ("bottleneck", "quick"): bottleneck.quick,
    ("bottleneck", "paper"): bottleneck.paper,
    ("memory", "quick"): memory.quick,
    ("memory", "paper"): memory.paper,
    ("tradeoff", "quick"): tradeoff.quick,
    ("tradeoff", "paper"): tradeoff.paper,
}
"""By name and scale; each takes the seeds."""


def reproduce(name: str, scale: str, out: Path, seeds: Sequence[int], jobs: int) -> str:
    """Run what is missing of a figure or table, write it, and return a description of the runs.

    Args:
        name: `shift`, `bottleneck`, `memory` or `tradeoff`.
        scale: `quick`, or `paper` to follow app:exp_details.
        out: a directory for the runs, NAME.png, .pdf, .csv, .md and .txt.
        seeds: lambda is chosen with the first one.
        jobs: runs at a time; `memory` and `tradeoff` always measure one at a time.
    """
    check_seeds(seeds)
    out.mkdir(parents=True, exist_ok=True)
    plan = PLANS[name, scale](seeds)
    if isinstance(plan, MemoryPlan):
        return memory.reproduce(plan, out)
    if isinstance(plan, TradeoffPlan):
        return tradeoff.reproduce(plan, out)
    return accuracies.reproduce(plan, out, jobs)
