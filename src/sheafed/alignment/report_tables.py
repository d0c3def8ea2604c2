"""The tables of a report, which fit into 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from sheafed.alignment.report import AlignmentReport

SHOWN_CYCLES = 10


def pairs_table(report: AlignmentReport) -> Table:
    sizes = sorted({pair.fold_size for pair in report.pairs if pair.fold_size})
    among = " to ".join(dict.fromkeys(map(str, (sizes[0], sizes[-1])))) if sizes else "none"
    searching = report.goal == "search"  # a column of its own would leave no room for names
    table = _table(
        f"Maps on held-out pilots (top-1 and rank: among {among}), for goal {report.goal}",
        ("from", "to", "map"),
        ("residual", "top-1", "search" if searching else "1/rank", "of ten", "verdict"),
    )
    for pair in report.pairs:
        rank = pair.neighbour_reciprocal_rank if searching else pair.reciprocal_rank
        figures = (pair.residual, pair.top1, rank, pair.first_of_ten)
        table.add_row(
            pair.sender,
            pair.receiver,
            pair.kind,
            *map(_shown, figures),
            "not judged" if pair.first_of_ten is None else pair.verdict,
        )
    table.columns[2].no_wrap = True  # names fold, kinds of map do not
    table.padding = (0, 1, 0, 0)
    table.caption = report.doubt
    return table


def edges_table(report: AlignmentReport) -> Table:
    table = _table(
        "Isometries (misalignment of the fitted pilots: 0 aligned, 1 unrelated)",
        ("from", "to", "sizes"),
        ("misalignment", "rank", "gap"),
    )
    for fit in report.edges:
        table.add_row(
            fit.tail,
            fit.head,
            f"{fit.d_tail} -> {fit.d_head}",
            _shown(fit.misalignment),
            f"{fit.rank}/{fit.d_tail}",
            f"{fit.gap:.1e}",
        )
    return table


def cycles_table(report: AlignmentReport) -> Table:
    worst = sorted(report.cycles, key=lambda h: -h.deviation)[:SHOWN_CYCLES]
    title = f"Round trips, {len(worst)} worst of {len(report.cycles)}"
    table = _table(title, ("cycle",), ("holonomy",))
    for holonomy in worst:
        round_trip = (*holonomy.cycle, holonomy.cycle[0])
        table.add_row(" -> ".join(round_trip), f"{holonomy.deviation:.4f}")
    return table


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}"


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
