"""The figures and tables of the paper's evaluation, and a grid of our own, each by one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sheafed.errors import ConfigError
from sheafed.optional import require_extra
from sheafed.reproduction import accuracies, bottleneck, grid, memory, shift, tradeoff
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


SEEDS = (0, 1, 2)


def reproduce(
    name: str,
    scale: str,
    out: Path,
    seeds: Sequence[int] | None,
    jobs: int,
    only: Collection[str] | None = None,
) -> str:
    """Run what is missing of a figure or table, write it, and return a description of the runs.

    Args:
        name: `shift`, `bottleneck`, `memory` or `tradeoff` of the paper, or `grid`.
        scale: `quick`, or `paper` to follow app:exp_details; the whole grid is `full`.
        out: a directory for the runs, NAME.png, .pdf, .csv, .md and .txt; see `grid` for its own.
        seeds: lambda is chosen with the first one; by default 0, 1, 2, and of the grid those of
            each model.
        jobs: runs at a time; `memory` and `tradeoff` always measure one at a time.
        only: the models of the grid that are run, by default all.
    """
    require_extra("report", "the figure", "matplotlib")  # before hours of runs
    if seeds is not None:
        check_seeds(seeds)
    if name == "grid":
        return grid.reproduce(grid.grid_plan(scale, seeds), out, jobs, only)
    if only is not None:
        raise ConfigError(f"only the grid has models to choose from, {name} has not; omit --only")
    if (name, scale) not in PLANS:
        scales = " and ".join(known for figure, known in PLANS if figure == name)
        raise ConfigError(f"the scales of {name} are {scales}, got {scale!r}")
    out.mkdir(parents=True, exist_ok=True)
    plan = PLANS[name, scale](SEEDS if seeds is None else seeds)
    if isinstance(plan, MemoryPlan):
        return memory.reproduce(plan, out)
    if isinstance(plan, TradeoffPlan):
        return tradeoff.reproduce(plan, out)
    return accuracies.reproduce(plan, out, jobs)
