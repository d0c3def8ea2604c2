"""The curves of every agent as small multiples: private and communication values."""

from __future__ import annotations

import plotly.graph_objects as go

from sheafed.report import style
from sheafed.report.charts import AXIS, empty_figure
from sheafed.report.curves import KIND_NAMES, Over, accuracy_axis, x_value
from sheafed.report.metric_values import is_accuracy, value_of
from sheafed.report.run_reader import RunDirectory
from sheafed.report.style import escape, format_number, shorten

AGENT_KINDS = ("private", "communication")
SHOWN_AGENTS = 48
"""More would take a browser seconds to draw."""


def agent_curves(run: RunDirectory, over: Over) -> list[go.Figure]:
    """Return a small figure for each agent, all with the same axes."""
    return [_figure(run, name, over) for name in list(run.agents)[:SHOWN_AGENTS]]


def _figure(run: RunDirectory, name: str, over: Over) -> go.Figure:
    figure = empty_figure(
        height=150,
        margin={"l": 10, "r": 8, "t": 24, "b": 10},
        showlegend=False,
        hovermode="closest",
        meta={"small": True},
        title={"text": shorten(name, 20), "font": {"size": 13}, "x": 0.02, "y": 0.97},
    )
    for look, kind in enumerate(AGENT_KINDS):
        points = [
            (x_value(record, over), value, record["epoch"])
            for record in run.records
            if (value := value_of(record.get("agents", {}).get(name, {}), kind)) is not None
        ]
        figure.add_scatter(
            x=[x for x, _, _ in points],
            y=[y for _, y, _ in points],
            hovertext=[
                f"<b>{escape(name)}</b><br>{KIND_NAMES[kind]} {format_number(y, 4)}<br>epoch {e}"
                for _, y, e in points
            ],
            hoverinfo="text",
            name=KIND_NAMES[kind],
            mode="lines" if len(points) > 1 else "markers",
            line={"color": style.run_colour(look), "width": 2},
        )
    small = AXIS | {"tickfont": {"size": 10}, "nticks": 4}
    last = max((x_value(record, over) for record in run.records), default=1.0)
    figure.update_xaxes(range=[0, 1.03 * last], **small)
    figure.update_yaxes(**small)
    if is_accuracy([run]):
        figure.update_yaxes(range=accuracy_axis([run]))
    return figure
