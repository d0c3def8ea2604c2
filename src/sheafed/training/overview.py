"""A network at a glance, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from sheafed.metrics.metric import metrics_of

if TYPE_CHECKING:
    from sheafed.training.history import RunHistory
    from sheafed.training.live_network import Network

SHOWN_AGENTS = 15
"""More would not fit on a screen."""
KINDS = ("private", "communication", "oracle")
HEADINGS = ("agent", "latent size", "samples", "neighbours", "private", "communication")
CELL = "padding:.1em .7em;text-align:"


def network_as_text(network: Network) -> str:
    rows, hidden = _rows(network)
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k in (0, 3) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (HEADINGS, *rows)
    ]
    more = [f"and {hidden} more agents"] if hidden else []
    return "\n".join([*_facts(network), "", *lines, *more])


def network_as_html(network: Network) -> str:
    """Return a table without scripts or files; every name is escaped."""
    rows, hidden = _rows(network)
    facts = "<br>".join(map(escape, _facts(network)))
    head, *body = (_html_row(row, "th" if row is HEADINGS else "td") for row in (HEADINGS, *rows))
    more = f"<div>and {hidden} more agents</div>" if hidden else ""
    table = f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"
    return f"<div>{facts}{table}{more}</div>"


def history_as_text(history: RunHistory) -> str:
    return f"RunHistory({', '.join([*_progress(history), *_values(history)])})"


def _facts(network: Network) -> list[str]:
    """Return a few lines: the graph, the training, the latest values."""
    agents, edges = len(network.metadata), network.graph.number_of_edges()
    history = network.history
    return [
        f"Network of {agents} agents and {edges} edges, {network.pilots.total} pilots",
        ", ".join([network.method.label, f"seed {history.seed}", *_progress(history)]),
        *_values(history),
    ]


def _progress(history: RunHistory) -> list[str]:
    stopped = ", stopped early" if history.stopped else ""
    # A loaded network has sent nothing itself.
    sent = history.ledger.bytes_sent() or (history.last or {}).get("bytes_sent", 0)
    return [
        f"epoch {history.epoch} of {history.schedule.epochs}{stopped}",
        f"{sent / 2**20:.1f} MiB sent",
    ]


def _values(history: RunHistory) -> list[str]:
    """Return the latest values of each metric, a phrase for each."""
    last = history.last or {}
    return [
        f"{metric}: "
        + ", ".join(f"{kind} {_number(last.get(f'{kind}_{metric}'))}" for kind in KINDS)
        for metric in metrics_of(last)
    ]


def _rows(network: Network) -> tuple[list[Sequence[str]], int]:
    """Return a row for each agent, as many as are shown, and how many are not."""
    found, recorded = network.history.evaluation, (network.history.last or {}).get("agents", {})
    names = list(network.metadata)
    values = {n: recorded.get(n, {}) if found is None else found.of_agent(n) for n in names}
    rows = [
        (
            _shorten(name, 24),
            str(network.metadata[name].dimension),
            str(network.metadata[name].training_samples),
            _shorten(", ".join(sorted(network.graph.neighbors(name))) or "none", 32),
            _value(values[name], "private", network.metadata[name].metric),
            _value(values[name], "communication", network.metadata[name].metric),
        )
        for name in names[:SHOWN_AGENTS]
    ]
    return list(rows), max(0, len(names) - SHOWN_AGENTS)


def _html_row(cells: Sequence[str], tag: str) -> str:
    sides = ("left" if k in (0, 3) else "right" for k in range(len(cells)))
    parts = (
        f'<{tag} style="{CELL}{side}">{escape(cell)}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(parts)}</tr>"


def _value(values: Mapping[str, float | None], kind: str, own: str) -> str:
    """Return a value of the agent's own metric, else one of a sender's, with its name.

    >>> _value({"communication_accuracy": 0.5, "communication_r2": None}, "communication", "r2")
    'accuracy 0.500'
    """
    if values.get(f"{kind}_{own}") is None:
        for key, value in values.items():
            if value is not None and key.startswith(f"{kind}_"):
                return f"{key.removeprefix(f'{kind}_')} {value:.3f}"
    return _number(values.get(f"{kind}_{own}"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
