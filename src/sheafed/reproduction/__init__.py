"""The figures and tables of the paper's evaluation, each by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sheafed.atomic_io import write_atomically
from sheafed.reproduction import accuracies, bottleneck, captions, memory, shift, tradeoff
from sheafed.reproduction.figures import draw, save
from sheafed.reproduction.plan import Plan
from sheafed.sweep.trials import check_seeds

AnyPlan = Plan | memory.Plan | tradeoff.Plan
PLANS: dict[tuple[str, str], Callable[[Sequence[int]], AnyPlan]] = {
    ("shift", "quick"): shift.quick,
    ("shift", "paper"): shift.paper,
    ("bottleneck", "quick"): bottleneck.quick,
    ("bottleneck", "paper"): bottleneck.paper,
    ("memory", "quick"): memory.quick,
    ("memory", "paper"): memory.paper,
    ("tradeoff", "quick"): tradeoff.quick,
    ("tradeoff", "paper"): tradeoff.paper,
}


def reproduce(name: str, scale: str, out: Path, seeds: Sequence[int], jobs: int) -> str:
    """Run what is missing of a figure or table, write it, and return what was run, in words.

    Args:
        name: `shift`, `bottleneck`, `memory` or `tradeoff`.
        scale: `quick`, or `paper` to follow app:exp_details.
        out: a directory for the runs, NAME.png, .pdf, .csv, .md and .txt.
        seeds: the first one chooses lambda.
        jobs: how many runs at a time; costs are measured one at a time.
    """
    check_seeds(seeds)
    out.mkdir(parents=True, exist_ok=True)
    plan = PLANS[name, scale](seeds)
    if isinstance(plan, memory.Plan):
        return memory.reproduce(plan, out)
    if isinstance(plan, tradeoff.Plan):
        return tradeoff.reproduce(plan, out)
    return accuracy_figure(plan, out, jobs)


def accuracy_figure(plan: Plan, out: Path, jobs: int) -> str:
    """Run a plan and write its figure, table and paragraph."""
    found = accuracies.run(plan, out, jobs)
    save(draw(plan, found, captions.note(plan)), out, plan.name)
    text = captions.paragraph(plan, accuracies.sizes(plan, out / accuracies.RUNS))
    write_atomically(out / f"{plan.name}.csv", accuracies.as_csv(plan, found).encode())
    write_atomically(out / f"{plan.name}.md", accuracies.as_markdown(plan, found).encode())
    write_atomically(out / f"{plan.name}.txt", text.encode())
    return text
