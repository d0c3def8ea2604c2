"""The table of a sweep in a terminal, where 80 columns must tell its rows apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from sheafed.sweep.results import Row, chosen_values, figures
from sheafed.sweep.trials import Overrides, key_of


def as_table(table: Sequence[Row], width: int) -> Table:
    """Return the figures of every row, its short name, and under that what was chosen.

    Args:
        table: its rows.
        width: of the terminal.
    """
    headings, cells = figures(table)
    known = [k for k in range(len(headings)) if any(row[k] != "-" for row in cells)]
    choosing = any(candidate for row in table for candidate in row.chosen)
    short = short_keys(o for row in table for c in (row.variant, *row.chosen) for o in c)
    shown = Table(padding=(0, 1, 0, 0), box=None)
    shown.add_column(
        "variant, and chosen values (seeds)" if choosing else "variant",
        overflow="fold",
        width=width // 5,
    )
    for k in known:
        shown.add_column(headings[k])
    for row, values in zip(table, cells, strict=True):
        label = " ".join(_shortened(row.variant, short)) or "the config"
        own = [_shortened(candidate, short) for candidate in row.chosen]
        if any(own):
            label += f"\nchosen: {chosen_values(own)}"
        shown.add_row(Text(label), *(values[k] for k in known))
    return shown


def short_keys(overrides: Iterable[str]) -> dict[str, str]:
    """Return, by key, as few of its last parts as tell it from the others.

    >>> short_keys(["method.options.penalty=1", "data.name=a", "method.name=b"])
    {'method.options.penalty': 'penalty', 'data.name': 'data.name', 'method.name': 'method.name'}
    """
    keys = list(dict.fromkeys(map(key_of, overrides)))
    short = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[k:]) for k in reversed(range(len(parts))))
        short[key] = next(
            (e for e in ends if sum(f".{k}".endswith(f".{e}") for k in keys) == 1), key
        )
    return short


def _shortened(overrides: Overrides, short: Mapping[str, str]) -> Overrides:
    return tuple(f"{short[key_of(o)]}={o.partition('=')[2]}" for o in overrides)
