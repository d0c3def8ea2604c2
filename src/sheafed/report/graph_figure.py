"""The agent graph: nodes by private accuracy, edges by misalignment."""

from __future__ import annotations

import math
from collections.abc import Iterable

import networkx as nx
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from sheafed.report import style
from sheafed.report.charts import colour_bar, empty_figure, finite, or_nan
from sheafed.report.metric_values import colour_scale, metric_label, value_of
from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.style import FAINT, INK, escape, format_bytes, format_number, shorten

CIRCLE_UP_TO = 16
"""More agents than this are placed by their distances in the graph, not on a circle."""
NAMED_UP_TO = 24
"""The names of more agents would overlap; they are shown on hover only."""


def misalignment_limit(runs: Iterable[RunDirectory]) -> float:
    """Return the upper end of the colour scale of edges, which begins at 0."""
    values = [edge.get("misalignment") for run in runs for edge in run.edges]
    return max(finite(values), default=1.0) or 1.0


def layout(run: RunDirectory) -> dict[str, tuple[float, float]]:
    """Return the position of every agent; equal networks have equal layouts."""
    names = list(run.agents)
    if len(names) == 1:
        return {names[0]: (0.0, 0.0)}
    circle = {
        name: (
            math.sin(2 * math.pi * k / len(names)),
            math.cos(2 * math.pi * k / len(names)),
        )
        for k, name in enumerate(names)
    }
    if len(names) <= CIRCLE_UP_TO:
        return circle
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(run.links)
    placed = nx.kamada_kawai_layout(graph, pos=circle)
    return {name: (float(x), float(y)) for name, (x, y) in placed.items()}


def graph_figure(
    run: RunDirectory, accuracies: tuple[float, float], misalignments: float
) -> go.Figure:
    places, named = layout(run), len(run.agents) <= NAMED_UP_TO
    figure = empty_figure(height=470, showlegend=False, margin={"l": 10, "r": 10, "t": 10, "b": 75})
    spots: list[tuple[float, float, str]] = []
    lines: list[tuple[list[float | None], list[float | None], str]] = []
    for a, b in run.links:
        (ax, ay), (bx, by) = places[a], places[b]
        value = run.edge(a, b).get("misalignment", run.edge(b, a).get("misalignment"))
        lines.append(([ax, bx, None], [ay, by, None], _edge_colour(value, misalignments)))
        text = _describe_link(run, a, b, value)
        spots += [(ax + (bx - ax) * t / 8, ay + (by - ay) * t / 8, text) for t in range(1, 8)]
    # An outline in the colour of the text keeps pale edges visible on white and dark ones on black.
    width = 5.0 if len(lines) <= 15 else 3.5 if len(lines) <= 60 else 2.0
    outline = {
        "x": [x for xs, _, _ in lines for x in xs],
        "y": [y for _, ys, _ in lines for y in ys],
    }
    figure.add_scatter(
        **outline, mode="lines", hoverinfo="skip", line={"color": INK, "width": width + 1.5}
    )
    for xs, ys, colour in lines:
        figure.add_scatter(
            x=xs, y=ys, mode="lines", hoverinfo="skip", line={"color": colour, "width": width}
        )
    figure.add_scatter(
        x=[x for x, _, _ in spots],
        y=[y for _, y, _ in spots],
        hovertext=[text for _, _, text in spots],
        hoverinfo="text",
        mode="markers",
        name="edges",
        marker={
            "size": 16,
            "opacity": 0,
            "color": [0.0] * len(spots),
            "colorscale": style.MISALIGNMENT,
            "cmin": 0,
            "cmax": misalignments,
            "showscale": True,
            "colorbar": colour_bar("edges: misalignment", x=0.52, length=0.46),
        },
    )
    figure.add_scatter(
        x=[places[name][0] for name in run.agents],
        y=[places[name][1] for name in run.agents],
        hovertext=[_describe_agent(name, agent) for name, agent in run.agents.items()],
        hoverinfo="text",
        text=[shorten(name, 10) if named else "" for name in run.agents],
        textposition=[_outside(*places[name]) for name in run.agents],
        textfont={"size": 13, "color": INK, "shadow": "auto"},
        cliponaxis=False,
        mode="markers+text",
        name="agents",
        marker={
            "size": 26 if named else 16,
            "line": {"width": 2, "color": INK},
            "color": [or_nan(value_of(agent, "private")) for agent in run.agents.values()],
            "colorscale": colour_scale(run),
            "cmin": accuracies[0],
            "cmax": accuracies[1],
            "showscale": True,
            "colorbar": colour_bar(f"agents: private {metric_label([run])}", x=0.02, length=0.46),
        },
    )
    hidden = {"visible": False, "fixedrange": True}
    room = 1.25 + 0.1 * max((min(10, len(name)) * named for name in run.agents), default=0)
    figure.update_xaxes(**hidden, range=[-room, room])
    figure.update_yaxes(**hidden, range=[-1.25, 1.25])
    return figure


def _describe_link(run: RunDirectory, a: str, b: str, misalignment: float | None) -> str:
    text = f"<b>{escape(a)} — {escape(b)}</b><br>misalignment {format_number(misalignment)}"
    for sender, receiver in ((a, b), (b, a)):
        edge = run.edge(sender, receiver)
        text += (
            f"<br>{escape(sender)} → {escape(receiver)}: "
            f"communication {format_number(value_of(edge, 'communication'))}, "
            f"oracle encoder {format_number(value_of(edge, 'oracle'))}, "
            f"{format_bytes(edge.get('bytes_sent'))}"
        )
    return text


def _describe_agent(name: str, agent: Record) -> str:
    text = (
        f"<b>{escape(name)}</b><br>private {format_number(value_of(agent, 'private'))}"
        f"<br>communication {format_number(value_of(agent, 'communication'))}"
    )
    if "dimension" in agent:
        text += f"<br>latent size {agent['dimension']}"
        text += f"<br>{agent['training_samples']} training samples"
        text += f"<br>{len(agent['neighbours'])} neighbours"
    if "objective" in agent:
        text += f"<br>objective {escape(agent['objective'])}"
    return text


def _edge_colour(value: float | None, limit: float) -> str:
    if value is None or not math.isfinite(value):
        return FAINT
    return str(sample_colorscale(style.MISALIGNMENT, [min(1.0, value / limit)])[0])


def _outside(x: float, y: float) -> str:
    """Return the side of a node on which its name does not cover edges."""
    across = "center" if abs(x) < 0.1 else "right" if x > 0 else "left"
    along = "middle" if abs(y) < 0.8 and across != "center" else "top" if y >= 0 else "bottom"
    return f"{along} {across}"
