"""The page: figures, tables and a small script in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from sheafed.atomic_io import write_atomically
from sheafed.errors import ReportError
from sheafed.report import style
from sheafed.report.agent_curves import AGENT_KINDS, SHOWN_AGENTS, agent_curves
from sheafed.report.config_summary import (
    comparable_settings,
    config_differences,
    config_tables,
    describe_config,
)
from sheafed.report.curves import KIND_NAMES, OVERS, curves, panels
from sheafed.report.graph_figure import graph_figure, misalignment_limit
from sheafed.report.heatmap import QUANTITIES, accuracy_range, gap_limit, heatmap
from sheafed.report.metric_values import metric_label, metric_names
from sheafed.report.run_reader import RunDirectory
from sheafed.report.traffic import traffic_by_edge, traffic_by_round
from sheafed.report.verdict import verdict

FIGURES = (
    ("misalignment", "Misalignment", "mean residual of the edges on the pilots, 0 is perfect"),
    ("bytes_sent", "MiB sent", "by all agents, headers included"),
    ("epochs", "Epochs", "finished"),
    ("seconds", "Time", "in total"),
)
"""Keys of a summary, with their headings and explanations."""
KIND_MEANINGS = {
    "private": "mean {} of agents on their own test data",
    "communication": "mean {} on latents from neighbours",
    "oracle": "receivers encode the inputs themselves; no bound",
}


def write_report(runs: Sequence[RunDirectory], path: str | Path) -> None:
    """Write the page about some runs to `path`; missing directories are created."""
    path = Path(path)
    content = page(runs).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as problem:
        raise ReportError(
            f"cannot write the report {path} ({problem.strerror}); give --out a file that can be "
            "written"
        ) from problem


def page(runs: Sequence[RunDirectory]) -> str:
    """Return the page; equal runs give equal pages."""
    templates = Environment(
        loader=PackageLoader("sheafed.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "exact": json.dumps,
        "metric": _format_metric,
        "run_colour": style.run_colour,
        "size": style.format_bytes,
    }
    plotly, script = get_plotlyjs(), _read_part("page.js")
    return templates.get_template("page.html").render(
        # Nothing is loaded, and no script runs but these two, whatever the names in the page are.
        policy=f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {_digest(plotly)} {_digest(script)}",
        css=_read_part("page.css"),
        plotly=plotly,
        script=script,
        figures=_as_json(_figures(runs)),
        title=runs[0].label if len(runs) == 1 else f"{len(runs)} runs",
        runs=runs,
        metrics=_headings(runs),
        most_agents=min(SHOWN_AGENTS, max(len(run.agents) for run in runs)),
        agent_kinds=[KIND_NAMES[kind] for kind in AGENT_KINDS],
        metric_label=metric_label(runs),
        verdict=verdict,
        panels=[title for title, _ in panels(runs)],
        describe_config=describe_config,
        config_tables=config_tables,
        differences=config_differences(comparable_settings(runs)),
    )


def _figures(runs: Sequence[RunDirectory]) -> dict[str, go.Figure]:
    """Return all figures by the keys that the page composes from the reader's choices."""
    accuracies = accuracy_range(runs)
    misalignments, gaps = misalignment_limit(runs), gap_limit(runs)
    figures = {}
    for k, run in enumerate(runs):
        figures[f"network/{k}"] = graph_figure(run, accuracies, misalignments)
        for quantity in QUANTITIES:
            figures[f"heatmap/{k}/{quantity}"] = heatmap(run, quantity, accuracies, gaps)
        if run.ledger:
            figures[f"edges/{k}"] = traffic_by_edge(run.ledger)
            figures[f"rounds/{k}"] = traffic_by_round(run.ledger)
    for over in OVERS:
        for k, run in enumerate(runs):
            for j, small in enumerate(agent_curves(run, over)):
                figures[f"agent/{k}/{over}/{j}"] = small
        for k, (_, keys) in enumerate(panels(runs)):
            figures[f"curve/{over}/{k}"] = curves(runs, keys, over)
    return figures


def _headings(runs: Sequence[RunDirectory]) -> list[tuple[str, str, str]]:
    """Return the keys of summaries to show, with headings and explanations."""
    metrics = metric_names(runs)
    found = []
    for metric in metrics:
        name = metric.replace("_", " ")
        for kind, meaning in KIND_MEANINGS.items():
            heading = KIND_NAMES[kind] if len(metrics) == 1 else f"{KIND_NAMES[kind]}, {name}"
            found.append((f"{kind}_{metric}", heading, meaning.format(name)))
    return [*found, *FIGURES]


def _as_json(figures: dict[str, go.Figure]) -> str:
    """Return figures as JSON that cannot close the script element that contains it."""
    entries = (
        f"{json.dumps(key)}:{value.to_json(engine='json')}" for key, value in figures.items()
    )
    return ("{" + ",\n".join(entries) + "}").replace("<", "\\u003c")


def _format_metric(value: float, key: str) -> str:
    if key == "bytes_sent":
        return style.format_mebibytes(value)
    if key == "seconds":
        return style.format_duration(value)
    return str(value) if key == "epochs" else style.format_number(value)


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read_part(name: str) -> str:
    return resources.files("sheafed.report").joinpath(name).read_text(encoding="utf-8")
