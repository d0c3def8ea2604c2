"""Run a plan: validation data choose lambda with one seed, which then serves all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sheafed.reproduction.plan import Curve, Plan
from sheafed.sweep.results import Row, average, best, is_done, read_summary, with_deviation
from sheafed.sweep.runner import Runner, failure
from sheafed.sweep.trials import Trial

RUNS = "runs"


@dataclass(frozen=True)
class Point:
    """A method at a value of the axis."""

    curve: Curve
    value: str
    row: Row | None
    """None if nothing finished."""
    penalty: str | None
    """The chosen lambda, if there was one to choose."""
    failures: tuple[str, ...] = ()
    """What went wrong, by trial."""


def run(plan: Plan, out: Path, jobs: int) -> list[Point]:
    """Run what is missing of a plan and return its points."""
    search = plan.search()
    runs = out / RUNS
    runner = Runner(plan.config, plan.settings, runs, jobs)
    for trial in [*search, *plan.repetitions(search)]:
        runner.check(trial)
    with runner:
        done = sum(is_done(trial, runs) for trial in search)
        print(f"choosing lambda with seed {plan.seeds[0]}: {len(search)} runs, {done} done")
        runner.run(search)
        again = plan.repetitions(list(_chosen(search, runs).values()))
        done = sum(is_done(trial, runs) for trial in again)
        print(f"the other seeds with the chosen lambda: {len(again)} runs, {done} done")
        runner.run(again)
    return points(plan, runs)


def points(plan: Plan, runs: Path) -> list[Point]:
    """Read what the runs of a plan have come to."""
    search = plan.search()
    chosen = _chosen(search, runs)
    found = []
    for value in plan.values:
        for curve in plan.curves:
            variant = plan.variant(curve, value)
            own = [trial for trial in search if trial.variant == variant]
            first = chosen.get(variant)
            kept = [] if first is None else [first, *plan.repetitions([first])]
            done = [trial for trial in kept if is_done(trial, runs)]
            penalty = first.candidate[0].partition("=")[2] if first and first.candidate else None
            failed = [t for t in dict.fromkeys([*own, *kept]) if not is_done(t, runs)]
            found.append(
                Point(
                    curve=curve,
                    value=value,
                    row=average(variant, done, runs) if done else None,
                    penalty=penalty,
                    failures=tuple(_complaint(trial, runs) for trial in failed),
                )
            )
    return found


def sizes(plan: Plan, runs: Path) -> list[int]:
    """Return how many training samples the agents had, in all runs that finished."""
    search = plan.search()
    counts = {
        agent["training_samples"]
        for trial in [*search, *plan.repetitions(search)]
        if is_done(trial, runs)
        for agent in read_summary(trial, runs)["agents"].values()
    }
    return sorted(counts)


def columns(plan: Plan) -> dict[str, str]:
    """Return the figures of a table by their headings."""
    suffix = "_degree_weighted" if plan.degree_weighted else ""
    return {
        "private": "private_accuracy",
        "communication (fair)": f"communication_accuracy{suffix}",
        "communication (as in paper)": f"as_in_paper{suffix}",
        "oracle_accuracy": f"oracle_accuracy{suffix}",
    }


def as_markdown(plan: Plan, found: Sequence[Point]) -> str:
    """Return the table for people; what failed stands below it."""
    shown = columns(plan)
    heads = [plan.axis_label, "method", *shown, "lambda", "seeds"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for point in found:
        if point.row is None:
            cells = ["failed", *["-"] * (len(shown) - 1), "-", "0"]
        else:
            row = point.row
            cells = [with_deviation(row.mean[k], row.deviation[k]) for k in shown.values()]
            cells += [point.penalty or "-", str(row.seeds)]
        lines.append(f"| {point.value} | {point.curve.label} | {' | '.join(cells)} |")
    complaints = [complaint for point in found for complaint in point.failures]
    if complaints:
        lines += ["", "Runs that failed:", "", *(f"- {complaint}" for complaint in complaints)]
    return "\n".join(lines) + "\n"


def as_csv(plan: Plan, found: Sequence[Point]) -> str:
    """Return the table with means and standard deviations as numbers."""
    keys = list(columns(plan).values())
    heads = [f"{key}{suffix}" for key in keys for suffix in ("", "_sd")]
    lines = [",".join([plan.axis, "method", *heads, "penalty", "seeds", "failed_runs"])]
    for point in found:
        cells = [point.value, point.curve.label]
        for key in keys:
            values = (None, None) if point.row is None else _pair(point.row, key)
            cells += ["" if value is None else repr(value) for value in values]
        seeds = 0 if point.row is None else point.row.seeds
        cells += [point.penalty or "", str(seeds), str(len(point.failures))]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _pair(row: Row, key: str) -> tuple[float | None, float | None]:
    return row.mean[key], row.deviation[key]


def _chosen(search: Sequence[Trial], runs: Path) -> dict[tuple[str, ...], Trial]:
    """Return the best candidate of every variant that has one."""
    variants = dict.fromkeys(trial.variant for trial in search)
    found = {v: best([t for t in search if t.variant == v], runs) for v in variants}
    return {variant: trial for variant, trial in found.items() if trial is not None}


def _complaint(trial: Trial, runs: Path) -> str:
    said = (failure(trial, runs) or "has not been run").splitlines()[-1]
    return f"{' '.join(trial.overrides)}: {said}"
