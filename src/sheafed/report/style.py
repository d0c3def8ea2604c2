"""Colours that colour-blind readers can tell apart, and numbers in readable form."""

from __future__ import annotations

import html
import math

# Placeholders, which the page replaces by the colours of its light or dark theme.
INK, FAINT, CARD = "rgb(1,2,3)", "rgb(1,2,4)", "rgb(1,2,5)"

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
ACCURACY = "Cividis"
MISALIGNMENT = "OrRd"
DIVERGING = [[0.0, "#0072B2"], [0.5, "#f2f2f2"], [1.0, "#D55E00"]]
NONE = "—"
PAYLOAD, HEADERS = "#0072B2", "#E69F00"


def run_colour(number: int) -> str:
    """Return the colour of a run; colours repeat after the last, with other symbols."""
    return OKABE_ITO[number % len(OKABE_ITO)]


def run_symbol(number: int) -> str:
    return SYMBOLS[number % len(SYMBOLS)]


def escape(text: object) -> str:
    """Return a text in which neither a browser nor plotly finds markup."""
    return html.escape(" ".join(str(text).split()), quote=False)


def shorten(text: str, length: int = 12) -> str:
    """Return the beginning of a long name, escaped."""
    return escape(text if len(text) <= length else text[: length - 1] + "…")


def format_number(value: float | None, decimals: int = 3) -> str:
    return NONE if value is None else f"{value:.{decimals}f}".replace("-", "−")  # noqa: RUF001


def format_bytes(count: float | None) -> str:
    """Return a number of bytes with a binary unit, to three digits."""
    if count is None:
        return NONE
    unit = 0
    while count >= 1024 and unit < 4:
        count, unit = count / 1024, unit + 1
    decimals = 0 if unit == 0 or count >= 100 else 1 if count >= 10 else 2
    return f"{count:.{decimals}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def format_mebibytes(count: float) -> str:
    """Return a number of bytes in MiB, to about three digits."""
    value = count / 2**20
    return f"{value:,.{0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 0.1 else 4}f}"


def format_duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
