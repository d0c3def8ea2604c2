"""A grid as a table: all cells, all methods."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from sheafed.reproduction.grid.paired import Difference, paired_difference
from sheafed.reproduction.grid.plan import ALONE, share_name
from sheafed.reproduction.grid.summary import CellFigures, Grid
from sheafed.sweep.tables import markdown_table, with_deviation

HEADINGS = (
    *("model", "data", "s", "method", "private", "against alone, points"),
    *("communication", "against alone, points", "seeds"),
)
EXPLANATION = (
    "Test accuracies, means ± standard deviations over seeds. Against alone: the mean difference "
    "of the same seeds in points, and its 95 % confidence interval by Student's t; bold: beyond "
    "noise, the interval excludes 0."
)


def as_markdown(grid: Grid, verdict: Sequence[str]) -> str:
    """Return the table, what it means, and the verdict as a list."""
    table = markdown_table(HEADINGS, [row for cell in grid.cells for row in _rows(cell)])
    lines = "".join(f"- {line}\n" for line in verdict)
    return f"{table}\n{EXPLANATION}\n\n{lines}"


def _rows(cell: CellFigures) -> list[list[str]]:
    alone = cell.rows[ALONE]
    return [
        [
            *(cell.model, share_name(cell.share), cell.shift, label),
            _mean(figures.private),
            "-" if label == ALONE else _interval(figures.private, alone.private),
            _mean(figures.communication),
            "-" if label == ALONE else _interval(figures.communication, alone.communication),
            str(len(figures.private)),
        ]
        for label, figures in cell.rows.items()
    ]


def _mean(values: Mapping[int, float]) -> str:
    known = list(values.values())
    mean = statistics.fmean(known) if known else None
    return with_deviation(mean, statistics.stdev(known) if len(known) > 1 else None)


def _interval(values: Mapping[int, float], alone: Mapping[int, float]) -> str:
    found = paired_difference(values, alone)
    return "-" if found is None else interval(found)


def interval(difference: Difference) -> str:
    """
    >>> interval(Difference(0.03, 0.01)), interval(Difference(-0.01, None))
    ('**+3.0 [+2.0, +4.0]**', '-1.0')
    """
    mean, margin = 100 * difference.mean, difference.margin
    if margin is None:
        return f"{mean:+.1f}"
    text = f"{mean:+.1f} [{mean - 100 * margin:+.1f}, {mean + 100 * margin:+.1f}]"
    return f"**{text}**" if difference.rose or difference.fell else text
