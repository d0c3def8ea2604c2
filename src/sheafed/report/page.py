"""The page: figures, tables and a little script in one file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from sheafed.atomic_io import write_atomically
from sheafed.errors import ReportError
from sheafed.report import style
from sheafed.report.config_summary import particulars
from sheafed.report.curves import OVERS, curves, panels
from sheafed.report.graph_figure import misalignment_limit, network
from sheafed.report.heatmap import VIEWS, accuracy_range, heatmap, loss_limit
from sheafed.report.run_reader import Record, RunFiles
from sheafed.report.traffic import traffic_by_edge, traffic_by_round

HEADLINES = (
    ("private_accuracy", "Private", "mean accuracy of agents on their own test data"),
    ("communication_accuracy", "Communication", "mean accuracy on the latents of neighbours"),
    ("oracle_accuracy", "Oracle", "receivers encode the senders' inputs themselves"),
    ("misalignment", "Misalignment", "mean residual of the edges on the pilots, 0 is perfect"),
    ("bytes_sent", "MiB sent", "by all agents, headers included"),
    ("epochs", "Epochs", "done"),
    ("seconds", "Time", "in all"),
)


def write_report(runs: Sequence[RunFiles], path: str | Path) -> None:
    """Write the page about some runs to `path`; directories are made."""
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


def page(runs: Sequence[RunFiles]) -> str:
    """Return the page; equal runs give equal pages."""
    plotly, script = get_plotlyjs(), _part("page.js")
    titles = [title for title, _ in panels(runs)]
    return Template(_part("page.html")).substitute(
        # Nothing is loaded, and no script runs but these two, whatever the names in the page say.
        policy=f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {_digest(plotly)} {_digest(script)}",
        style=_part("page.css"),
        plotly=plotly,
        script=script,
        several="several" if len(runs) > 1 else "single",
        title=_text(runs[0].label if len(runs) == 1 else f"{len(runs)} runs"),
        figures=_json(_figures(runs)),
        selector="".join(_option(k, run) for k, run in enumerate(runs)),
        headlines=_each(runs, _headline),
        comparison=_comparison(runs),
        legend=_legend(runs),
        curves="".join(
            f'<figure><h3>{_text(title)}</h3><div class="plot" data-figure="curve/{{over}}/{k}">'
            "</div></figure>"
            for k, title in enumerate(titles)
        )
        or "<p>Nothing has been evaluated yet.</p>",
        ledger=_each(runs, _ledger),
        config=_each(runs, _config),
        differences=_differences(runs),
    )


def _figures(runs: Sequence[RunFiles]) -> dict[str, go.Figure]:
    """Return all figures; a place of the page names one by a key with the choices filled in."""
    accuracies = accuracy_range(runs)
    misalignments, losses = misalignment_limit(runs), loss_limit(runs)
    found = {}
    for k, run in enumerate(runs):
        found[f"network/{k}"] = network(run, accuracies, misalignments)
        for view in VIEWS:
            found[f"heat/{k}/{view}"] = heatmap(run, view, accuracies, losses)
        if run.ledger is not None and len(run.ledger) > 0:
            found[f"edges/{k}"] = traffic_by_edge(run)
            found[f"rounds/{k}"] = traffic_by_round(run)
    for over in OVERS:
        for k, (_, keys) in enumerate(panels(runs)):
            found[f"curve/{over}/{k}"] = curves(runs, keys, over)
    return found


def _json(found: dict[str, go.Figure]) -> str:
    """Return figures as JSON that cannot end the element it stands in."""
    entries = (f"{json.dumps(key)}:{value.to_json(engine='json')}" for key, value in found.items())
    return ("{" + ",\n".join(entries) + "}").replace("<", "\\u003c")


def _each(runs: Iterable[RunFiles], render: Any) -> str:
    """Return something of every run; the script shows that of the chosen one."""
    return "".join(
        f'<div data-run="{k}"{" hidden" if k else ""}>{render(run)}</div>'
        for k, run in enumerate(runs)
    )


def _option(k: int, run: RunFiles) -> str:
    mark = "" if run.finished else " (unfinished)"
    return f'<option value="{k}">{_text(run.label + mark)}</option>'


def _headline(run: RunFiles) -> str:
    cards = "".join(
        f'<div class="card"><dt>{name}</dt><dd>{_value(run, key)}</dd><p>{_text(meaning)}</p></div>'
        for key, name, meaning in HEADLINES
    )
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in run.notes)
    return (
        f'<p class="what">{_badge(run)}<b>{_text(run.label)}</b>: '
        f"{_text(run.headline.get('method'))}, seed {_text(run.headline.get('seed'))}, "
        f"{len(run.agents)} agents, {len(run.links)} edges</p>{_particulars(run)}{notes}"
        f'<dl class="cards">{cards}</dl>'
    )


def _particulars(run: RunFiles) -> str:
    found = "; ".join(particulars(run.config or {}))
    return f'<p class="particulars">With {_text(found)}.</p>' if found else ""


def _badge(run: RunFiles) -> str:
    wanted = (run.config or {}).get("training", {}).get("epochs")
    done = run.headline.get("epochs", 0)
    if run.finished and (wanted is None or wanted <= done):
        return ""
    state = "ended" if run.finished else "unfinished:"
    return f'<span class="badge">{state} {done}{f" of {wanted}" if wanted else ""} epochs</span> '


def _value(run: RunFiles, key: str) -> str:
    """Return a figure as people read it, with the exact one beside it for machines."""
    value = run.headline.get(key)
    if value is None:
        return style.NONE
    exact = _text(json.dumps(value))
    return f'<data data-key="{key}" value="{exact}" title="{exact}">{_shown(key, value)}</data>'


def _shown(key: str, value: Any) -> str:
    if key == "bytes_sent":
        return style.mebibytes(value)
    if key == "seconds":
        return style.duration(value)
    return str(value) if key == "epochs" else style.number(value)


def _comparison(runs: Sequence[RunFiles]) -> str:
    if len(runs) == 1:
        return ""
    head = "".join(f"<th>{name}</th>" for _, name, _ in HEADLINES)
    body = "".join(
        f'<tr data-label="{_text(run.label)}"><th scope="row">{_swatch(k)} {_text(run.label)} '
        f"{_badge(run)}<small>{_text(run.headline.get('method'))}, "
        f"seed {_text(run.headline.get('seed'))}</small></th>"
        + "".join(
            f'<td data-name="{name}"><span>{_value(run, key)}</span></td>'
            for key, name, _ in HEADLINES
        )
        + "</tr>"
        for k, run in enumerate(runs)
    )
    return (
        '<section><h2>Comparison</h2><table class="comparison"><thead><tr><th>Run</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></section>"
    )


def _legend(runs: Sequence[RunFiles]) -> str:
    if len(runs) == 1:
        return ""
    entries = (f"<li>{_swatch(k)} {_text(run.label)}</li>" for k, run in enumerate(runs))
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _swatch(k: int) -> str:
    return f'<i class="swatch" style="background:{style.run_colour(k)}"></i>'


def _ledger(run: RunFiles) -> str:
    if run.ledger is None or len(run.ledger) == 0:
        return "<p>There is no ledger, or nothing was sent.</p>"
    total, payload = run.ledger.bytes_sent(), run.ledger.payload_bytes()
    edges = run.ledger.per_edge()
    rows = "".join(
        f"<tr><td>{_text(sender)}</td><td>{_text(receiver)}</td><td>{t.messages:,}</td>"
        f'<td>{t.header_bytes:,}</td><td>{t.payload_bytes:,}</td><td><data data-key="edge" '
        f'value="{t.header_bytes + t.payload_bytes}">{t.header_bytes + t.payload_bytes:,}</data>'
        "</td></tr>"
        for (sender, receiver), t in edges.items()
    )
    heads = ("sender", "receiver", "messages", "header bytes", "payload bytes", "bytes")
    return (
        f"<p>{style.size(total)} in {len(run.ledger):,} messages over {len(edges)} directed edges: "
        f"payload {style.size(payload)}, headers {style.size(total - payload)} "
        f"({100 * (total - payload) / total:.1f}&nbsp;%).</p>"
        f"<details><summary>All {len(edges)} directed edges, in bytes</summary>"
        f'<div class="scroll"><table class="numbers"><thead><tr>'
        f"{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>{rows}</tbody></table>"
        "</div></details>"
    )


def _config(run: RunFiles) -> str:
    if run.config is None:
        return "<p>No config.json was kept: the run was started from Python.</p>"
    tables: dict[str, list[tuple[str, Any]]] = {}
    for key, value in _flat(run.config).items():
        table, _, rest = key.rpartition(".") if key.count(".") < 2 else key.partition(".")
        tables.setdefault(table, []).append((rest, value))
    return (
        '<div class="config">'
        + "".join(
            f"<div><h3>{_text(f'[{table}]' if table else 'experiment')}</h3><dl>"
            + "".join(f"<dt>{_text(k)}</dt><dd>{_text(_compact(v))}</dd>" for k, v in entries)
            + "</dl></div>"
            for table, entries in tables.items()
        )
        + "</div>"
    )


def _differences(runs: Sequence[RunFiles]) -> str:
    """Return the settings in which the runs differ."""
    flat = [_flat(run.config or {}) for run in runs]
    keys = [key for key in dict.fromkeys(k for f in flat for k in f) if _differ(flat, key)]
    if len(runs) == 1 or not keys:
        return ""
    head = "".join(f"<th>{_swatch(k)} {_text(run.label)}</th>" for k, run in enumerate(runs))
    rows = "".join(
        f"<tr><th>{_text(key)}</th>"
        + "".join(f"<td>{_text(_compact(f[key])) if key in f else style.NONE}</td>" for f in flat)
        + "</tr>"
        for key in keys
    )
    return (
        '<h3>What differs between the runs</h3><div class="wide"><table class="differences">'
        f"<thead><tr><th>setting</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _differ(flat: Sequence[Record], key: str) -> bool:
    return len({_compact(f[key]) if key in f else "" for f in flat}) > 1


def _flat(config: Record, prefix: str = "") -> Record:
    """Return a config by dotted keys, as `--set` takes them."""
    found: Record = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _compact(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n".join(map(_compact, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: object) -> str:
    return html.escape(str(value))


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return resources.files("sheafed.report").joinpath(name).read_text(encoding="utf-8")
