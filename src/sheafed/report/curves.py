"""Metrics over epochs or over bytes, of one run or of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import plotly.graph_objects as go

from sheafed.report import style
from sheafed.report.charts import AXIS, empty_figure, finite
from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.style import escape, format_bytes, format_number

Over = Literal["epochs", "bytes"]
OVERS: tuple[Over, ...] = ("epochs", "bytes")
NAMES = {
    "private_accuracy": "Private",
    "communication_accuracy": "Communication",
    "oracle_accuracy": "Oracle encoder",
    "misalignment": "Misalignment",
    "loss": "Task loss",
    "penalty": "Penalty",
    "distillation_loss": "Distillation loss",
}
_ACCURACIES = ("private_accuracy", "communication_accuracy", "oracle_accuracy")
_NOT_DRAWN = (
    "communication_accuracy_degree_weighted",
    "validation_private_accuracy",
    "validation_communication_accuracy",
    "validation_score",
)


def panels(runs: Sequence[RunDirectory]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the panels to draw: a title, and the keys of the records that share its axes."""
    first: list[tuple[str, tuple[str, ...]]] = (
        [("Accuracy on test data", _ACCURACIES)]
        if len(runs) == 1
        else [(f"{NAMES[key]} accuracy (test)", (key,)) for key in _ACCURACIES]
    )
    rest = dict.fromkeys(
        key
        for run in runs
        for record in run.records
        for key, value in record.items()
        if isinstance(value, float) and key not in (*_ACCURACIES, *_NOT_DRAWN)
    )
    return [
        (title, keys)
        for title, keys in (*first, *((_name(key), (key,)) for key in rest))
        if any(r.get(key) is not None for key in keys for run in runs for r in run.records)
    ]


def curves(runs: Sequence[RunDirectory], keys: Sequence[str], over: Over) -> go.Figure:
    """Draw some metrics of all runs: a colour per metric if there is one run, else per run."""
    several = len(runs) > 1
    figure = empty_figure(
        height=270 if len(keys) == 1 else 310,
        margin={"l": 10, "r": 15, "t": 10 if len(keys) == 1 else 40, "b": 10},
        showlegend=len(keys) > 1,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    for position, run in enumerate(runs):
        for k, key in enumerate(keys):
            drawn = [record for record in run.records if record.get(key) is not None]
            look = position if several else k
            name = run.label if several else _name(key)
            figure.add_scatter(
                x=[_x(record, over) for record in drawn],
                y=[record[key] for record in drawn],
                hovertext=[_describe_record(name, key, record) for record in drawn],
                hoverinfo="text",
                name=escape(name),
                mode="lines+markers" if len(drawn) <= 60 else "lines",
                line={"color": style.run_colour(look), "width": 2.5},
                marker={"symbol": style.run_symbol(look), "size": 8},
            )
    figure.update_xaxes(
        title="epoch" if over == "epochs" else "MiB sent by all agents",
        rangemode="tozero",
        **AXIS,
    )
    figure.update_yaxes(**AXIS)
    if all("accuracy" in key for key in keys):
        figure.update_yaxes(range=_accuracy_axis(runs))
    return figure


def _describe_record(name: str, key: str, record: Record) -> str:
    return (
        f"<b>{escape(name)}</b><br>{escape(_name(key))} {format_number(record[key], 4)}"
        f"<br>epoch {record.get('epoch')}, {format_bytes(record.get('bytes_sent'))} sent"
    )


def _accuracy_axis(runs: Sequence[RunDirectory]) -> list[float]:
    """Return one range for all accuracies, so that panels are comparable."""
    values = finite(r.get(key) for run in runs for r in run.records for key in _ACCURACIES)
    lowest = min(values, default=0.0)
    return [max(-0.02, math.floor(lowest * 10) / 10 - 0.02), 1.02]


def _x(record: Record, over: Over) -> float:
    return float(record["epoch"]) if over == "epochs" else record.get("bytes_sent", 0) / 2**20


def _name(key: str) -> str:
    return NAMES.get(key, key.replace("_", " ").capitalize())
