"""Colours that colour-blind readers can tell apart, and numbers as people write them."""

from __future__ import annotations

import html
import math

# Stand-ins, which the page replaces by the colours of its light or dark theme.
INK, FAINT, CARD = "rgb(1,2,3)", "rgb(1,2,4)", "rgb(1,2,5)"

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
ACCURACY = "Cividis"
MISALIGNMENT = "OrRd"
DIVERGING = [[0.0, "#0072B2"], [0.5, "#f2f2f2"], [1.0, "#D55E00"]]
NONE = "—"
PAYLOAD, HEADERS = "#0072B2", "#E69F00"


def run_colour(number: int) -> str:
    """Return the colour of a run; after the last one they begin anew, with other symbols."""
    return OKABE_ITO[number % len(OKABE_ITO)]


def run_symbol(number: int) -> str:
    """Return the symbol of a run."""
    return SYMBOLS[number % len(SYMBOLS)]


def escape(text: object) -> str:
    """Return a text that neither a browser nor plotly takes for markup."""
    return html.escape(" ".join(str(text).split()), quote=False)


def short(text: str, length: int = 12) -> str:
    """Return the beginning of a long name, escaped."""
    return escape(text if len(text) <= length else text[: length - 1] + "…")


def number(value: float | None, decimals: int = 3) -> str:
    """Return a number with fixed decimals, a dash for none."""
    return NONE if value is None else f"{value:.{decimals}f}".replace("-", "−")  # noqa: RUF001


def size(count: float | None) -> str:
    """Return a number of bytes, readable, to three digits."""
    if count is None:
        return NONE
    unit = 0
    while count >= 1024 and unit < 4:
        count, unit = count / 1024, unit + 1
    decimals = 0 if unit == 0 or count >= 100 else 1 if count >= 10 else 2
    return f"{count:.{decimals}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def mebibytes(count: float | None) -> str:
    """Return a number of bytes in MiB, to about three digits."""
    if count is None:
        return NONE
    value = count / 2**20
    return f"{value:,.{0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 0.1 else 4}f}"


def duration(seconds: float | None) -> str:
    """Return a time as people say it."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
