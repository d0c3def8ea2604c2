"""Runs a plan: the validation score chooses settings with one seed; all seeds then use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sheafed.reproduction.captions import description, subtitle
from sheafed.reproduction.figures import draw_accuracies, write_files
from sheafed.reproduction.plan import AccuracyPlan, Point
from sheafed.reproduction.selection import (
    all_candidates,
    chosen_trials,
    is_at_edge,
    penalty_of,
    shrinkages_of,
)
from sheafed.sweep.results import average, is_finished, read_summary
from sheafed.sweep.runner import Runner, read_failure
from sheafed.sweep.tables import csv_table, markdown_table, with_deviation
from sheafed.sweep.trials import Trial

RUNS = "runs"


def reproduce(plan: AccuracyPlan, out: Path, jobs: int) -> str:
    """Run a plan, write its figure, tables and description, and return the description."""
    points = run(plan, out, jobs)
    text = description(plan, training_samples(plan, out / RUNS))
    figure = draw_accuracies(plan, points, subtitle(plan))
    write_files(out, plan.name, figure, as_csv(plan, points), as_markdown(plan, points), text)
    return text


def run(plan: AccuracyPlan, out: Path, jobs: int) -> list[Point]:
    """Run what is missing of a plan and return its points."""
    first = plan.candidate_trials()
    runs = out / RUNS
    runner = Runner(plan.config, plan.settings, runs, jobs)
    runner.check([*first, *plan.repetitions(first)])

    def run_candidates(trials: Sequence[Trial]) -> None:
        runner.check(trials)
        runner.run(trials, f"choosing settings with seed {plan.seeds[0]}")

    with runner:
        candidates = all_candidates(plan, runs, run_candidates)
        chosen = list(chosen_trials(candidates, runs).values())
        runner.run(plan.repetitions(chosen), "the other seeds with the chosen settings")
    return read_points(plan, runs)


def read_points(plan: AccuracyPlan, runs: Path) -> list[Point]:
    """Return the results of the runs of a plan, finished or not."""
    candidates = all_candidates(plan, runs)
    chosen = chosen_trials(candidates, runs)
    points = []
    for value in plan.values:
        for curve in plan.curves:
            variant = plan.variant(curve, value)
            own = [trial for trial in candidates if trial.variant == variant]
            first = chosen.get(variant)
            kept = [] if first is None else [first, *plan.repetitions([first])]
            finished = [trial for trial in kept if is_finished(trial, runs)]
            failed = [t for t in dict.fromkeys([*own, *kept]) if not is_finished(t, runs)]
            points.append(
                Point(
                    curve=curve,
                    value=value,
                    row=average(variant, finished, runs) if finished else None,
                    penalty=penalty_of(first) if first and first.candidate else None,
                    at_edge=first is not None and is_at_edge(candidates, first),
                    shrinkages=shrinkages_of(curve, finished, runs),
                    failures=tuple(_failure(trial, runs) for trial in failed),
                )
            )
    return points


def training_samples(plan: AccuracyPlan, runs: Path) -> list[int]:
    """Return the sorted numbers of training samples of the agents in all finished runs."""
    candidates = all_candidates(plan, runs)
    counts = {
        agent["training_samples"]
        for trial in [*candidates, *plan.repetitions(candidates)]
        if is_finished(trial, runs)
        for agent in read_summary(trial, runs)["agents"].values()
    }
    return sorted(counts)


def as_markdown(plan: AccuracyPlan, points: Sequence[Point]) -> str:
    """Return the table, and below it the errors of failed runs."""
    rows = []
    for point in points:
        if point.row is None:
            cells = ["failed", *["-"] * (len(plan.columns) + 1), "0"]
        else:
            row = point.row
            cells = [with_deviation(row.mean[k], row.deviation[k]) for k in plan.columns.values()]
            penalty = point.penalty or "-"
            shrinkages = ", ".join(f"{s:g}" for s in point.shrinkages) or "-"
            cells += [f"{penalty} (edge)" if point.at_edge else penalty, shrinkages, str(row.seeds)]
        rows.append([point.value, point.curve.label, *cells])
    table = markdown_table(
        [plan.axis_label, "method", *plan.columns, "lambda", "shrinkage", "seeds"], rows
    )
    failures = [f"- {failure}\n" for point in points for failure in point.failures]
    return table + ("\nRuns that failed:\n\n" + "".join(failures) if failures else "")


def as_csv(plan: AccuracyPlan, points: Sequence[Point]) -> str:
    """Return the table with means and standard deviations as numbers."""
    keys = list(plan.columns.values())
    headings = [f"{key}{suffix}" for key in keys for suffix in ("", "_sd")]
    rows = []
    for point in points:
        row = point.row
        values: list[float | None] = [None] * len(headings)
        if row is not None:
            values = [v for key in keys for v in (row.mean[key], row.deviation[key])]
        seeds = 0 if row is None else row.seeds
        rows.append(
            [
                point.value,
                point.curve.label,
                *values,
                point.penalty,
                int(point.at_edge),
                " ".join(f"{s:g}" for s in point.shrinkages),
                seeds,
                len(point.failures),
            ]
        )
    last = ["penalty", "penalty_at_edge", "shrinkage", "seeds", "failed_runs"]
    return csv_table([plan.axis, "method", *headings, *last], rows)


def _failure(trial: Trial, runs: Path) -> str:
    error = (read_failure(trial, runs) or "has not been run").splitlines()[-1]
    return f"{' '.join(trial.overrides)}: {error}"
