"""What all figures share: an empty one in the colours of the page, axes, colour bars."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from sheafed.report.style import CARD, FAINT, INK

AXIS = {
    "showgrid": True,
    "gridcolor": FAINT,
    "zeroline": False,
    "automargin": True,
    "fixedrange": True,
}


def figure_of(**arguments: Any) -> go.Figure:
    """Return an empty figure; the arguments are of its layout."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        paper_bgcolor=CARD,
        plot_bgcolor=CARD,
        font={"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        hoverlabel={"bgcolor": CARD, "bordercolor": INK, "font": {"color": INK}, "align": "left"},
        dragmode=False,
    )
    figure.update_layout(**arguments)
    return figure


def bars(**arguments: Any) -> go.Figure:
    """Return an empty figure for bars, with a legend above them."""
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    margin = {"l": 10, "r": 15, "t": 40, "b": 10}
    return figure_of(legend=legend, margin=margin, hovermode="closest", **arguments)


def colour_bar(title: str, *, x: float, length: float) -> dict[str, Any]:
    """Return a colour bar below the figure."""
    return {
        "title": {"text": title, "side": "top", "font": {"size": 12}},
        "orientation": "h",
        "x": x,
        "xanchor": "left",
        "y": -0.02,
        "yanchor": "top",
        "len": length,
        "thickness": 12,
        "nticks": 5,
        "tickfont": {"size": 11},
        "outlinecolor": FAINT,
    }


def or_nan(value: float | None) -> float:
    """Return NaN, which plotly leaves out, for a number that there is not."""
    return math.nan if value is None else value


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the numbers that there are."""
    return [value for value in values if value is not None and math.isfinite(value)]
