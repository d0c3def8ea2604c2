"""The figures of a grid's finished runs, all that its table, picture and verdict are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sheafed.errors import DataFormatError
from sheafed.reproduction.grid.plan import Cell, GridPlan, cell_name
from sheafed.sweep.results import average, is_finished
from sheafed.sweep.runner import read_failure
from sheafed.sweep.trials import Trial

RUNS = "runs"


@dataclass(frozen=True)
class Figures:
    """Test accuracies of one method in one cell, by seed."""

    private: Mapping[int, float]
    communication: Mapping[int, float]


@dataclass(frozen=True)
class CellFigures:
    """What is known of a cell."""

    model: str
    """Its label."""
    share: float
    shift: str
    rounds: int
    """Of the training, of every row."""
    rows: Mapping[str, Figures]
    """By method; of one without a finished run both are empty."""
    failures: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return cell_name(self.model, self.share, self.shift)


@dataclass(frozen=True)
class Grid:
    """All planned cells, in the order of the picture."""

    scale: str
    cells: tuple[CellFigures, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why models were left out, by name."""

    def to_json(self) -> bytes:
        return _GRIDS.dump_json(self, indent=1)


_GRIDS = TypeAdapter(Grid)


def read_grid(path: Path) -> Grid:
    """Read `grid.json`."""
    try:
        return _GRIDS.validate_json(path.read_bytes())
    except ValidationError as problem:
        raise DataFormatError(
            f"{path} is not the summary of a grid; repeat `sheafed reproduce grid`: {problem}"
        ) from problem


def summarise(plan: GridPlan, runs: Path, left_out: Mapping[str, str]) -> Grid:
    """Return what has finished of a grid."""
    cells = tuple(_cell(plan, cell, runs / cell.model.name) for cell in plan.cells())
    return Grid(plan.scale, cells, left_out)


def _cell(plan: GridPlan, cell: Cell, runs: Path) -> CellFigures:
    trials = {row: plan.trials_of(cell, row) for row in cell.model.rows}
    failures = [
        f"{row}, seed {trial.seed}: {error.splitlines()[-1]}"
        for row, own in trials.items()
        for trial in own
        if not is_finished(trial, runs) and (error := read_failure(trial, runs))
    ]
    return CellFigures(
        model=cell.model.label,
        share=cell.share.fraction,
        shift=cell.shift,
        rounds=cell.share.epochs * cell.share.rounds,
        rows={row: _figures(own, runs) for row, own in trials.items()},
        failures=tuple(failures),
    )


def _figures(trials: list[Trial], runs: Path) -> Figures:
    """Communication is that of maps whose shrinkage validation data chose, if fitted afterwards."""
    private, communication = {}, {}
    for trial in trials:
        if is_finished(trial, runs):
            found = average(trial.variant, [trial], runs).mean
            private[trial.seed], communication[trial.seed] = (
                _known(found[key], trial) for key in ("private_accuracy", "fair")
            )
    return Figures(private, communication)


def _known(value: float | None, trial: Trial) -> float:
    if value is None:
        raise DataFormatError(f"{trial.directory} has measured no accuracy; delete it, run again")
    return value
