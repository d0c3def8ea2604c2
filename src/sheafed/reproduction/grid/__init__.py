"""One recommended method against all others, in every cell of a grid, by one call.

A cell is a model, a share of its training data and a label shift. Runs that are missing are made,
cell after cell; after each, `grid.json` sums up what has finished, and `grid.md`, `grid.png` and
`grid.pdf` show it, so that an interrupted grid is seen as far as it got.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from sheafed.atomic_io import write_atomically
from sheafed.config.dataset import missing_latents
from sheafed.config.reading import read_experiment
from sheafed.errors import ConfigError
from sheafed.reproduction.figures import save_figure
from sheafed.reproduction.grid.figure import draw
from sheafed.reproduction.grid.plan import SCALES, GridModel, GridPlan
from sheafed.reproduction.grid.summary import RUNS, Grid, read_grid, summarise
from sheafed.reproduction.grid.tables import as_markdown
from sheafed.reproduction.grid.verdict import verdict
from sheafed.sweep.results import is_finished
from sheafed.sweep.runner import Runner

__all__ = ["Grid", "GridModel", "GridPlan", "grid_plan", "read_grid", "reproduce", "verdict"]

NAME = "grid"


def grid_plan(scale: str, seeds: Sequence[int] | None = None) -> GridPlan:
    """Return the grid at a scale, `quick` or `full`; by default each model has its own seeds."""
    if scale not in SCALES:
        raise ConfigError(f"the scales of grid are {' and '.join(SCALES)}, got {scale!r}")
    return SCALES[scale](seeds)


def reproduce(plan: GridPlan, out: Path, jobs: int, only: Collection[str] | None = None) -> str:
    """Run what is missing, write the picture, the table and the summary, return the verdict.

    Args:
        plan: the whole grid, all of which is shown.
        out: for the runs, grid.png, .pdf, .md and .json.
        jobs: runs at a time.
        only: the models whose cells are run, by default all.
    """
    chosen = [model for model in plan.models if only is None or model.name in only]
    if only is not None and (unknown := set(only) - {model.name for model in plan.models}):
        raise ConfigError(
            f"unknown model {', '.join(sorted(unknown))} at scale {plan.scale}; "
            f"models: {', '.join(model.name for model in plan.models)}"
        )
    reasons = {model.name: _why_left_out(model) for model in chosen if not plan.may_encode}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    for reason in left_out.values():
        print(reason, flush=True)
    chosen = [model for model in chosen if model.name not in left_out]
    out.mkdir(parents=True, exist_ok=True)
    runners = {
        model.name: Runner(model.config, model.settings, out / RUNS / model.name, jobs)
        for model in chosen
    }
    cells = [cell for cell in plan.cells() if cell.model.name in runners]
    for cell in cells:
        runners[cell.model.name].check(plan.trials(cell))
    for cell in cells:
        trials = plan.trials(cell)
        with runners[cell.model.name] as runner:
            if not all(is_finished(trial, runner.out) for trial in trials):
                runner.run(trials, cell.name)
                _write(plan, out, left_out)
    return _write(plan, out, left_out)


def _why_left_out(model: GridModel) -> str | None:
    """Return why a model's runs cannot start at once; None if they can."""
    experiment = read_experiment(model.config, model.settings)
    missing = missing_latents(experiment.data, experiment.model)
    if not missing:
        return None
    return (
        f"{model.label} is left out: the cache lacks latents of {experiment.data.name} by "
        f"{', '.join(missing)}, and encoding takes long. `sheafed run {model.config} --out DIR` "
        "encodes them once; then repeat this command."
    )


def _write(plan: GridPlan, out: Path, left_out: dict[str, str]) -> str:
    write_atomically(out / f"{NAME}.json", summarise(plan, out / RUNS, left_out).to_json())
    grid = read_grid(out / f"{NAME}.json")
    lines = verdict(grid)
    write_atomically(out / f"{NAME}.md", as_markdown(grid, lines).encode())
    save_figure(draw(grid), out, NAME)
    return "\n".join(lines) + "\n"
