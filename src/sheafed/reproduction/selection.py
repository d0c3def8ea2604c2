"""The trials that settings are chosen from: lambda until it is bracketed, then the shrinkage.

The shrinkage of a whitening that is fitted after training needs no trials: every run tries all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sheafed.methods import ZCA
from sheafed.reproduction.plan import PENALTY, AccuracyPlan, Curve
from sheafed.sweep.bracketing import beyond
from sheafed.sweep.results import best_trial, read_summary
from sheafed.sweep.trials import Overrides, Trial
from sheafed.training.post_hoc_maps import SHRINKAGES


def all_candidates(
    plan: AccuracyPlan, runs: Path, run: Callable[[Sequence[Trial]], None] = lambda trials: None
) -> list[Trial]:
    """Return the trials of a plan's choices, as far as the runs that there are lead to them.

    Args:
        plan: begins with `candidate_trials`.
        runs: the directory of the runs.
        run: called with trials before their results are looked at.
    """
    trials = more = plan.candidate_trials()
    while more:
        run(more)
        points = [(curve, value) for value in plan.values for curve in plan.curves]
        more = [t for curve, value in points for t in _next(plan, curve, value, trials, runs)]
        trials = [*trials, *more]
    return trials


def is_at_edge(trials: Sequence[Trial], chosen: Trial) -> bool:
    """Whether no trial of the same variant has a lambda beyond that of the chosen one."""
    own = [penalty_of(t) for t in trials if t.variant == chosen.variant and t.candidate]
    return bool(own) and beyond(own, penalty_of(chosen)) is not None


def penalty_of(trial: Trial) -> str:
    """Return the lambda of a trial that has one."""
    return dict(o.split("=", 1) for o in trial.candidate)[PENALTY]


def shrinkages_of(curve: Curve, trials: Sequence[Trial], runs: Path) -> tuple[float, ...]:
    """Return the different shrinkages of finished trials with chosen settings, sorted."""
    found = set()
    for trial in trials:
        if curve.shrinkage is not None:
            settings = dict(o.split("=", 1) for o in trial.candidate)
            found.add(float(settings.get(curve.shrinkage, ZCA().shrinkage)))
        else:
            found.add(
                read_summary(trial, runs).get("whitenings", {}).get("fair", {}).get("shrinkage")
            )
    return tuple(sorted(found - {None}))


def chosen_trials(trials: Sequence[Trial], runs: Path) -> dict[Overrides, Trial]:
    """Return the best candidate of every variant that has a finished one."""
    variants = dict.fromkeys(trial.variant for trial in trials)
    best = {v: best_trial([t for t in trials if t.variant == v], runs, fair=True) for v in variants}
    return {variant: trial for variant, trial in best.items() if trial is not None}


def _next(
    plan: AccuracyPlan, curve: Curve, value: str, trials: Sequence[Trial], runs: Path
) -> list[Trial]:
    """Return the trials by which the choice of one point goes on; none if it is made."""
    variant, seed = plan.variant(curve, value), plan.seeds[0]
    own = [trial for trial in trials if trial.variant == variant and trial.candidate]
    grid = [trial for trial in own if len(trial.candidate) == 1]
    if not grid:
        return []
    penalties, best = [penalty_of(trial) for trial in grid], best_trial(grid, runs, fair=True)
    # Where all diverged, a smaller lambda may not.
    chosen = min(penalties, key=float) if best is None else penalty_of(best)
    further = beyond(penalties, chosen)
    if further is not None and len(grid) < len(plan.penalties) + plan.extensions:
        return [Trial(variant, (f"{PENALTY}={further}",), seed)]
    if best is None or curve.shrinkage is None or len(own) > len(grid):
        return []
    return [
        Trial(variant, (*best.candidate, f"{curve.shrinkage}={shrinkage}"), seed)
        for shrinkage in SHRINKAGES
        if shrinkage != ZCA().shrinkage  # the grid has it
    ]
