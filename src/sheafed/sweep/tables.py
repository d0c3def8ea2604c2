"""Tables as CSV for programs and as Markdown for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def csv_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV file; None is an empty cell, floats keep all their digits."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return content.getvalue()


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_markdown_row(headings), "|---" * len(headings) + "|", *map(_markdown_row, rows)]
    return "\n".join(lines) + "\n"


def with_deviation(mean: float | None, deviation: float | None) -> str:
    """Return `mean ± standard deviation`, as far as they are known."""
    if mean is None:
        return "-"
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
