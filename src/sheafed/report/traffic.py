"""The ledger as bars: bytes per directed edge and per round, payload and headers apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from sheafed.report import style
from sheafed.report.charts import AXIS, empty_bar_chart
from sheafed.report.style import escape, format_bytes, shorten
from sheafed.transport.ledger import Ledger, Traffic

BINS = 240
"""The largest number of bars."""


def traffic_by_edge(ledger: Ledger) -> go.Figure:
    traffic = ledger.per_edge()
    order = sorted(traffic, key=lambda edge: sum(traffic[edge][1:]))
    labels = [f"{shorten(a, 10)} → {shorten(b, 10)}" for a, b in order]
    texts = [f"<b>{escape(a)} → {escape(b)}</b><br>{_describe(traffic[a, b])}" for a, b in order]
    figure = empty_bar_chart(height=90 + 22 * max(3, len(order)), barmode="stack")
    for name, colour, parts in _stacks([traffic[edge] for edge in order]):
        figure.add_bar(
            x=parts,
            y=list(range(len(order))),
            orientation="h",
            name=name,
            marker={"color": colour},
            hovertext=texts,
            hoverinfo="text",
        )
    figure.update_xaxes(title="MiB", rangemode="tozero", **AXIS)
    figure.update_yaxes(**AXIS | {"showgrid": False}, tickvals=list(range(len(order))))
    figure.update_yaxes(ticktext=labels, range=[-0.6, len(order) - 0.4])
    return figure


def traffic_by_round(ledger: Ledger) -> go.Figure:
    """Draw the bytes of every round; in a long run each bar is the mean of several rounds."""
    traffic = ledger.per_round()
    last = max(traffic)
    width = math.ceil((last + 1) / BINS)
    bins: dict[int, list[int]] = {}
    for round, counted in traffic.items():
        total = bins.setdefault(round // width, [0, 0, 0])
        bins[round // width] = [a + b for a, b in zip(total, counted, strict=True)]
    sums = [Traffic(*total) for total in bins.values()]
    spans = [min(width, last + 1 - k * width) for k in bins]
    texts = [
        f"<b>{_rounds(k * width, span)}</b><br>{_describe(total)}"
        for k, span, total in zip(bins, spans, sums, strict=True)
    ]
    figure = empty_bar_chart(height=330, barmode="stack")
    for name, colour, parts in _stacks(sums):
        figure.add_bar(
            x=[1 + k * width + (span - 1) / 2 for k, span in zip(bins, spans, strict=True)],
            y=[part / span for part, span in zip(parts, spans, strict=True)],
            width=[span * (0.9 if len(bins) < 120 else 1.0) for span in spans],
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            hovertext=texts,
            hoverinfo="text",
        )
    figure.update_xaxes(title="round", **AXIS)
    mean = "" if width == 1 else f", mean of {width} rounds"
    figure.update_yaxes(title=f"MiB per round{mean}", rangemode="tozero", **AXIS)
    return figure


def _describe(total: Traffic) -> str:
    return (
        f"payload {format_bytes(total.payload_bytes)}<br>headers {format_bytes(total.header_bytes)}"
        f"<br>{total.messages} messages"
    )


def _stacks(totals: Sequence[Traffic]) -> list[tuple[str, str, list[float]]]:
    return [
        ("payload", style.PAYLOAD, [total.payload_bytes / 2**20 for total in totals]),
        ("headers", style.HEADERS, [total.header_bytes / 2**20 for total in totals]),
    ]


def _rounds(start: int, span: int) -> str:
    return f"round {start + 1}" if span == 1 else f"rounds {start + 1} to {start + span}"
