"""What a grid says of the recommended method: where it costs, and where another is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sheafed.reproduction.grid.paired import Difference, paired_difference
from sheafed.reproduction.grid.plan import ALONE, CONTROLS, RECOMMENDED, REFITTED
from sheafed.reproduction.grid.summary import CellFigures, Grid

TOLERANCE = 0.005
"""A fall of mean private accuracy that is not counted."""


@dataclass(frozen=True)
class Judgement:
    """The recommended method in a cell where it and training alone have finished."""

    cell: str
    private: dict[str, Difference]
    """Against training alone, and the same with heads fitted again, by row."""
    communication: Difference
    """Against training alone."""
    better: dict[str, Difference]
    """The methods that communicate better beyond noise, and by how much."""
    unjudged: tuple[str, ...]
    """The methods that share fewer than two seeds with the recommended one."""

    @property
    def private_fell(self) -> dict[str, Difference]:
        """The rows against which private accuracy fell beyond noise."""
        return {row: found for row, found in self.private.items() if found.fell}

    @property
    def private_fell_much(self) -> dict[str, Difference]:
        """Those against which its mean fell by more than is tolerated, be it noise or not."""
        return {row: found for row, found in self.private.items() if found.mean < -TOLERANCE}


def judge(cell: CellFigures) -> Judgement | None:
    """Return a cell's judgement; None if the recommended method or training alone is missing."""
    recommended = cell.rows[RECOMMENDED]
    private = {
        row: found
        for row in (ALONE, REFITTED)
        if row in cell.rows
        and (found := paired_difference(recommended.private, cell.rows[row].private)) is not None
    }
    communication = paired_difference(recommended.communication, cell.rows[ALONE].communication)
    if ALONE not in private or communication is None:
        return None
    others = [row for row in cell.rows if row not in (RECOMMENDED, *CONTROLS)]
    leads = {
        row: paired_difference(cell.rows[row].communication, recommended.communication)
        for row in others
    }
    return Judgement(
        cell.name,
        private,
        communication,
        better={row: lead for row, lead in leads.items() if lead is not None and lead.rose},
        unjudged=tuple(row for row, d in leads.items() if d is None or d.margin is None),
    )


def verdict(grid: Grid) -> list[str]:
    """Return the verdict as sentences, which name the cells that they count."""
    judged = [judgement for cell in grid.cells if (judgement := judge(cell)) is not None]
    unjudged = [f"{j.cell} ({', '.join(j.unjudged)})" for j in judged if j.unjudged]
    failures = [f"{cell.name}: {failure}" for cell in grid.cells for failure in cell.failures]
    points = f"{100 * TOLERANCE:g} points"
    lines = [
        f"{RECOMMENDED} against training alone: {len(judged)} of {len(grid.cells)} cells have run.",
        _count(
            "Private accuracy fell beyond noise",
            [f"{j.cell} ({_against(j.private_fell)})" for j in judged if j.private_fell],
        ),
        _count(
            f"Private accuracy fell by more than {points} in the mean",
            [f"{j.cell} ({_against(j.private_fell_much)})" for j in judged if j.private_fell_much],
        ),
        _count(
            "Another method communicates better beyond noise",
            [
                f"{j.cell} ({', '.join(f'{row} {as_points(d)}' for row, d in j.better.items())})"
                for j in judged
                if j.better
            ],
        ),
    ]
    if unjudged:
        lines.append(_count("Too few common seeds to tell noise", unjudged))
    if failures:
        lines.append(f"Runs that failed, {len(failures)}: {'; '.join(failures)}.")
    return [*lines, *grid.left_out.values()]


def as_points(difference: Difference) -> str:
    """
    >>> as_points(Difference(0.0125, 0.01))
    '+1.2 ± 1.0'
    """
    margin = "" if difference.margin is None else f" ± {100 * difference.margin:.1f}"
    return f"{100 * difference.mean:+.1f}{margin}"


def _against(falls: Mapping[str, Difference]) -> str:
    return ", ".join(f"{as_points(found)} against {row}" for row, found in falls.items())


def _count(what: str, cells: Sequence[str]) -> str:
    named = f": {'; '.join(cells)}" if cells else ""
    return f"{what} in {len(cells)} cell{'' if len(cells) == 1 else 's'}{named}."
