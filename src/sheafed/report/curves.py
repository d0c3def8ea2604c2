"""Records over epochs or over bytes, of one run or of several."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import plotly.graph_objects as go

from sheafed.report import style
from sheafed.report.charts import AXIS, empty_figure, finite
from sheafed.report.metric_values import KINDS, is_accuracy, metric_names, value_of
from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.style import escape, format_bytes, format_number

Over = Literal["epochs", "bytes"]
OVERS: tuple[Over, ...] = ("epochs", "bytes")
NAMES = {
    "misalignment": "Misalignment",
    "loss": "Task loss",
    "penalty": "Penalty",
    "distillation_loss": "Distillation loss",
}
KIND_NAMES = dict(zip(KINDS, ("Private", "Communication", "Oracle encoder"), strict=True))
UNITS = {"misalignment": "residual, 0 is perfect"}
_NOT_DRAWN = re.compile("validation_.*|.*_degree_weighted")


def panels(runs: Sequence[RunDirectory]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the panels to draw: a title, and the keys of the records that share its axes."""
    first: list[tuple[str, tuple[str, ...]]] = []
    for metric in metric_names(runs):
        keys = tuple(f"{kind}_{metric}" for kind in KINDS)
        if len(runs) == 1:
            first.append((f"{_words(metric)} on test data", keys))
        else:
            first += [(f"{_name(key)} {_words(metric).lower()} (test)", (key,)) for key in keys]
    drawn = {key for _, keys in first for key in keys}
    rest = dict.fromkeys(
        key
        for run in runs
        for record in run.records
        for key, value in record.items()
        if isinstance(value, float) and key not in drawn and not _NOT_DRAWN.fullmatch(key)
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
                x=[x_value(record, over) for record in drawn],
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
    figure.update_yaxes(title=y_label(keys[0]), **AXIS)
    if is_accuracy(runs) and kind_of(keys[0]):
        figure.update_yaxes(range=accuracy_axis(runs))
    return figure


def _describe_record(name: str, key: str, record: Record) -> str:
    return (
        f"<b>{escape(name)}</b><br>{escape(_name(key))} {format_number(record[key], 4)}"
        f"<br>epoch {record.get('epoch')}, {format_bytes(record.get('bytes_sent'))} sent"
    )


def accuracy_axis(runs: Sequence[RunDirectory]) -> list[float]:
    """Return one range for all accuracies, so that panels are comparable."""
    records = [record for run in runs for record in run.records]
    agents = [agent for record in records for agent in record.get("agents", {}).values()]
    values = finite(value_of(item, kind) for item in (*records, *agents) for kind in KINDS)
    lowest = min(values, default=0.0)
    return [max(-0.02, math.floor(lowest * 10) / 10 - 0.02), 1.02]


def kind_of(key: str) -> str | None:
    """Return whether a key is of a private, a communication or an oracle value."""
    return next((kind for kind in KINDS if key.startswith(f"{kind}_")), None)


def y_label(key: str) -> str:
    kind = kind_of(key)
    return _words(key.removeprefix(f"{kind}_") if kind else UNITS.get(key, key)).lower()


def x_value(record: Record, over: Over) -> float:
    return float(record["epoch"]) if over == "epochs" else record.get("bytes_sent", 0) / 2**20


def _name(key: str) -> str:
    return KIND_NAMES.get(kind_of(key) or "") or NAMES.get(key) or _words(key)


def _words(key: str) -> str:
    return key.replace("_", " ").capitalize()
