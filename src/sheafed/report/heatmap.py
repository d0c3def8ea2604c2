"""Values of metrics by sender (rows) and receiver (columns) as a heat map."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from sheafed.report import style
from sheafed.report.charts import colour_bar, empty_figure, finite
from sheafed.report.metric_values import KINDS, colour_scale, is_accuracy, metric_label, value_of
from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.style import INK, escape, format_bytes, format_number, shorten

Quantity = Literal["communication", "oracle", "gap"]
QUANTITIES: tuple[Quantity, ...] = ("communication", "oracle", "gap")


def accuracy_range(runs: Sequence[RunDirectory]) -> tuple[float, float]:
    """Return one colour range for all values of all runs, so that colours are comparable."""
    items = [item for run in runs for item in (*run.agents.values(), *run.edges)]
    values = finite(value_of(item, kind) for item in items for kind in KINDS)
    lowest = min(values, default=0.0)
    if not is_accuracy(runs):
        return lowest, max([lowest, *values]) + 1e-9
    return math.floor(min(lowest, 0.9) * 10) / 10, 1.0


def gap_limit(runs: Iterable[RunDirectory]) -> float:
    """Return the largest absolute gap between oracle and communication accuracy, at least 0.05."""
    gaps = finite(oracle_gap(edge) for run in runs for edge in run.edges)
    return max([0.05, *(abs(value) for value in gaps)])


def oracle_gap(edge: Mapping[str, Any]) -> float | None:
    """Return oracle minus communication, if both are known."""
    communication, oracle = value_of(edge, "communication"), value_of(edge, "oracle")
    return None if communication is None or oracle is None else oracle - communication


def heatmap(
    run: RunDirectory, quantity: Quantity, accuracies: tuple[float, float], gaps: float
) -> go.Figure:
    names = list(run.agents)
    cells = [[_cell(run, sender, receiver, quantity) for receiver in names] for sender in names]
    ticks = {
        "tickvals": list(range(len(names))),
        "ticktext": [shorten(name) for name in names],
        "showgrid": False,
        "showline": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "ticks": "",
        "tickfont": {"size": 13 if len(names) <= 20 else 10},
    }
    few = len(names) <= 20
    figure = empty_figure(
        height=470 + (0 if few else 12 * len(names) - 240),
        margin={"l": 10, "r": 10, "t": 30, "b": 75},
    )
    figure.update_layout(meta={"columns": len(names)})
    scale = style.DIVERGING if quantity == "gap" else colour_scale(run)
    low, high = (-gaps, gaps) if quantity == "gap" else accuracies
    title = "oracle encoder − communication" if quantity == "gap" else metric_label([run])  # noqa: RUF001
    # Two layers, because a heat map has one text colour: black on pale cells, white on dark ones.
    for ink in ("#000000", "#ffffff"):
        layer = [
            [(v, t) if _ink(v, scale, low, high) == ink else (None, "") for v, t in row]
            for row in cells
        ]
        figure.add_heatmap(
            z=[[value for value, _ in row] for row in layer],
            hovertext=[[text for _, text in row] for row in layer],
            text=[["" if v is None else format_number(v, 2) for v, _ in row] for row in layer],
            texttemplate="%{text}" if few else None,
            textfont={"color": ink},
            hoverinfo="text",
            hoverongaps=False,
            xgap=2 if few else 1,
            ygap=2 if few else 1,
            colorscale=scale,
            zmin=low,
            zmax=high,
            showscale=ink == "#000000",
            colorbar=colour_bar(title, x=0.1, length=0.8),
        )
    if quantity != "gap":
        for k in range(len(names)):
            square = {"x0": k - 0.46, "x1": k + 0.46, "y0": k - 0.46, "y1": k + 0.46}
            figure.add_shape(type="rect", **square, line={"color": INK, "width": 2.5})
    edge = len(names) - 0.5
    figure.update_xaxes(
        **ticks,
        title={"text": "receiver", "standoff": 8},
        side="top",
        range=[-0.5, edge],
        autotickangles=[0, -90],
    )
    figure.update_yaxes(**ticks, title={"text": "sender", "standoff": 8}, range=[edge, -0.5])
    return figure


def _cell(
    run: RunDirectory, sender: str, receiver: str, quantity: Quantity
) -> tuple[float | None, str]:
    """Return the value and the hover text of a cell; nothing where there is no edge."""
    if sender == receiver:
        value = None if quantity == "gap" else value_of(run.agents[sender], "private")
        return (
            value,
            f"<b>{escape(sender)}</b>, its own test data<br>private {format_number(value)}",
        )
    edge = run.edge(sender, receiver)
    value = oracle_gap(edge) if quantity == "gap" else value_of(edge, quantity)
    return value, _describe_edge(edge)


def _describe_edge(edge: Record) -> str:
    if not edge:
        return ""
    return (
        f"<b>{escape(edge['sender'])} → {escape(edge['receiver'])}</b>"
        f"<br>communication {format_number(value_of(edge, 'communication'))}"
        f"<br>oracle encoder {format_number(value_of(edge, 'oracle'))}"
        f"<br>difference {format_number(oracle_gap(edge))}"
        f"<br>misalignment {format_number(edge.get('misalignment'))}"
        f"<br>sent {format_bytes(edge.get('bytes_sent'))}"
    )


def _ink(value: float | None, scale: Any, low: float, high: float) -> str:
    """Return black or white, whichever is more legible on the colour of a value."""
    if value is None or not math.isfinite(value):
        return "#000000"
    place = (value - low) / (high - low)
    colour = sample_colorscale(scale, [min(1.0, max(0.0, place))], colortype="tuple")[0]
    linear = [(c / 12.92) if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"
