"""Shared by all figures: empty figures in the colours of the page, axes, colour bars."""

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


def empty_figure(**layout: Any) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="none",
        paper_bgcolor=CARD,
        plot_bgcolor=CARD,
        font={"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        hoverlabel={"bgcolor": CARD, "bordercolor": INK, "font": {"color": INK}, "align": "left"},
        dragmode=False,
    )
    figure.update_layout(**layout)
    return figure


def empty_bar_chart(**layout: Any) -> go.Figure:
    """Return an empty figure with a legend above the bars."""
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    margin = {"l": 10, "r": 15, "t": 40, "b": 10}
    return empty_figure(legend=legend, margin=margin, hovermode="closest", **layout)


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
    """Return NaN for None; plotly does not draw it."""
    return math.nan if value is None else value


def finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
