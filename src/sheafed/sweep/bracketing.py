"""Grids that bracket: a value chosen at the edge of its candidates asks for one beyond it."""

from __future__ import annotations

from collections.abc import Sequence

from sheafed.sweep.results import Row
from sheafed.sweep.trials import Trial


def beyond(candidates: Sequence[str], chosen: str) -> str | None:
    """Return the next candidate past a chosen one at an edge, by the ratio of the grid there.

    None if the chosen one is not at an edge, or no ratio leads on, as from a single number or 0.

    >>> beyond(["0.01", "0.1", "1"], "1")
    '10'
    >>> beyond(["0.01", "0.1", "1"], "0.1") is None
    True
    """
    values, edge = sorted({float(candidate) for candidate in candidates}), float(chosen)
    if len(values) < 2 or edge not in (values[0], values[-1]):
        return None
    inner = values[1] if edge == values[0] else values[-2]
    return f"{edge * edge / inner:.6g}" if edge > 0 and inner > 0 else None


def edge_notes(trials: Sequence[Trial], table: Sequence[Row]) -> list[str]:
    """Return a sentence for every number that was chosen at the edge of its candidates."""
    notes = []
    for row in table:
        tried = [o for t in trials if t.variant == row.variant for o in t.candidate]
        for override in dict.fromkeys(o for candidate in row.chosen for o in candidate):
            key, _, value = override.partition("=")
            grid = [o.partition("=")[2] for o in tried if o.partition("=")[0] == key]
            further = beyond(grid, value) if all(map(_is_number, grid)) else None
            if further is not None:
                where = f" of {' '.join(row.variant)}" if row.variant else ""
                notes.append(
                    f"{override}{where} was chosen at the edge of its candidates; try {further} too"
                )
    return notes


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
