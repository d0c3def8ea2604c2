"""Who understands whom: senders in rows, receivers in columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from sheafed.report import style
from sheafed.report.charts import colour_bar, figure_of, finite
from sheafed.report.run_reader import Record, RunFiles
from sheafed.report.style import INK, escape, number, short, size

View = Literal["communication", "oracle_accuracy", "loss"]
VIEWS: tuple[View, ...] = ("communication", "oracle_accuracy", "loss")


def accuracy_range(runs: Sequence[RunFiles]) -> tuple[float, float]:
    """Return one colour range for all accuracies of all runs, so that colours compare."""
    values = [a.get("private_accuracy") for run in runs for a in run.agents.values()]
    for run in runs:
        values += [
            e.get(key) for e in run.edges for key in ("communication_accuracy", "oracle_accuracy")
        ]
    lowest = min(finite(values), default=0.0)
    return math.floor(min(lowest, 0.9) * 10) / 10, 1.0


def loss_limit(runs: Iterable[RunFiles]) -> float:
    """Return the largest loss or gain against the ceiling, at least 0.05."""
    losses = finite(loss(edge) for run in runs for edge in run.edges)
    return max([0.05, *(abs(value) for value in losses)])


def loss(edge: Mapping[str, Any]) -> float | None:
    """Return what communication loses to the ceiling; below 0 where it gains."""
    got, oracle = edge.get("communication_accuracy"), edge.get("oracle_accuracy")
    return None if got is None or oracle is None else oracle - got


def heatmap(run: RunFiles, view: View, accuracies: tuple[float, float], losses: float) -> go.Figure:
    """Draw who understands whom: senders in rows, receivers in columns."""
    names = list(run.agents)
    cells = [[_cell(run, sender, receiver, view) for receiver in names] for sender in names]
    ticks = {
        "tickvals": list(range(len(names))),
        "ticktext": [short(name) for name in names],
        "showgrid": False,
        "showline": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "ticks": "",
        "tickfont": {"size": 13 if len(names) <= 20 else 10},
    }
    few = len(names) <= 20
    figure = figure_of(
        height=470 + (0 if few else 12 * len(names) - 240),
        margin={"l": 10, "r": 10, "t": 30, "b": 75},
    )
    figure.update_layout(meta={"columns": len(names)})
    scale = style.DIVERGING if view == "loss" else style.ACCURACY
    low, high = (-losses, losses) if view == "loss" else accuracies
    title = "ceiling − communication" if view == "loss" else "accuracy"  # noqa: RUF001
    # Two layers, because a heat map has one colour of text: black on pale cells, white on dark.
    for ink in ("#000000", "#ffffff"):
        layer = [
            [(v, t) if _ink(v, scale, low, high) == ink else (None, "") for v, t in row]
            for row in cells
        ]
        figure.add_heatmap(
            z=[[value for value, _ in row] for row in layer],
            hovertext=[[text for _, text in row] for row in layer],
            text=[["" if v is None else number(v, 2) for v, _ in row] for row in layer],
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
    if view != "loss":
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


def _cell(run: RunFiles, sender: str, receiver: str, view: View) -> tuple[float | None, str]:
    """Return the value of a cell and what hovering it tells; nothing where there is no edge."""
    if sender == receiver:
        value = None if view == "loss" else run.agents[sender].get("private_accuracy")
        return value, f"<b>{escape(sender)}</b>, its own test data<br>private {number(value)}"
    edge = run.edge(sender, receiver)
    key = "oracle_accuracy" if view == "oracle_accuracy" else "communication_accuracy"
    return (loss(edge) if view == "loss" else edge.get(key)), _describe_edge(edge)


def _describe_edge(edge: Record) -> str:
    if not edge:
        return ""
    return (
        f"<b>{escape(edge['sender'])} → {escape(edge['receiver'])}</b>"
        f"<br>after communication {number(edge.get('communication_accuracy'))}"
        f"<br>oracle {number(edge.get('oracle_accuracy'))}"
        f"<br>lost to the oracle {number(loss(edge))}"
        f"<br>misalignment {number(edge.get('misalignment'))}"
        f"<br>sent {size(edge.get('bytes_sent'))}"
    )


def _ink(value: float | None, scale: Any, low: float, high: float) -> str:
    """Return black or white, whichever is easier to read on the colour of a value."""
    if value is None or not math.isfinite(value):
        return "#000000"
    place = (value - low) / (high - low)
    colour = sample_colorscale(scale, [min(1.0, max(0.0, place))], colortype="tuple")[0]
    linear = [(c / 12.92) if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"
