"""A run in a sentence: communication and its references, the worst pair, and what to try."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from sheafed.report.metric_values import (
    KINDS,
    greater_is_better,
    is_accuracy,
    metric_names,
    value_of,
)
from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.style import format_number

NOTABLE = 0.02
"""The smallest difference of accuracies that calls for advice: deviations between seeds in
docs/results/digits.md are about as large. Of other metrics it is a share of the reference."""
PAIR_NOTABLE = 0.05
"""The same of one pair, whose test data are fewer."""
CAUSES = {
    "way": "latents lose on their way",
    "heads": "heads know their neighbours' data too little",
    "either": "latents lose on their way or heads know their neighbours' data too little",
}
UNMEASURED = (
    "what is lost on the way was not measured (it needs training.oracle = true, in one process)"
)


def verdict(run: RunDirectory) -> str | None:
    """Return the sentence; None if nothing was communicated."""
    values = _values(run)
    if "communication" not in values:
        return None
    communication, greater = values["communication"], greater_is_better(run, metric_names([run])[0])
    references = {"private": "private", "oracle": "the oracle encoder"}
    clauses = [
        _compare(communication, values[kind], name, greater)
        for kind, name in references.items()
        if kind in values
    ]
    metric = metric_names([run])[0].replace("_", " ")
    said = f"Communication reaches {metric} {format_number(communication)}"
    said += f", {' and '.join(clauses)}" if clauses else ""
    if worst := worst_edge(run):
        value = format_number(value_of(worst, "communication"))
        said += f"; the worst pair is {worst['sender']} → {worst['receiver']} ({value})"
    return f"{said}; {advice(run)}."


def worst_edge(run: RunDirectory) -> Record | None:
    """Return the directed edge with the worst communication, of those with the first metric."""
    metric = metric_names([run])[0]
    key, sign = f"communication_{metric}", 1 if greater_is_better(run, metric) else -1
    return min(_measured(run), key=lambda edge: sign * edge[key], default=None)


def advice(run: RunDirectory) -> str:
    """Return what to try next, by what pairs fall short of; or what was not measured."""
    edges = _measured(run)
    by_pair = [(_cause(run, _pair(run, edge), PAIR_NOTABLE), edge) for edge in edges]
    whole = _cause(run, _values(run), NOTABLE)
    found = {cause for cause, _ in by_pair if cause in CAUSES}
    if whole in CAUSES and (whole == "way" or not found):  # many pairs lose a little, or no pairs
        found.add(whole)
    parts = []
    for cause in (cause for cause in CAUSES if cause in found):
        where = _where(run, [edge for of, edge in by_pair if of == cause], len(edges), cause)
        parts.append(CAUSES[cause] + where + _remedy(run, cause))
    if not parts:
        unmeasured = "oracle" not in _values(run)
        parts = [UNMEASURED if unmeasured else "nothing notable is lost on the edges"]
    return "; ".join(parts)


def _cause(run: RunDirectory, values: Mapping[str, float], margin: float) -> str | None:
    """Return what communication, of a pair or on average, falls short by; None if it does not."""
    sign = 1 if greater_is_better(run, metric_names([run])[0]) else -1

    def lacks(kind: str) -> bool:
        if kind not in values or "communication" not in values:
            return False
        scale = 1.0 if is_accuracy([run]) else abs(values[kind])
        return sign * (values[kind] - values["communication"]) > margin * scale

    if lacks("oracle"):  # the receiver's own encoder would do better: the map loses something
        return "way"
    if lacks(
        "private"
    ):  # if even its own encoder does not help, its head does not know such inputs
        return "heads" if "oracle" in values else "either"
    return None


def _where(run: RunDirectory, edges: Sequence[Record], total: int, cause: str) -> str:
    """Return on how many pairs something is lost, and on which of them the most."""
    if not edges:
        return ""
    kind, name = ("oracle", "oracle encoder") if cause == "way" else ("private", "private")

    def loss(edge: Record) -> float:
        values = _pair(run, edge)
        return abs(values[kind] - values["communication"])

    most = max(edges, key=loss)
    values = _pair(run, most)
    return (
        f" on {len(edges)} of {total} pairs, {'most on ' if len(edges) > 1 else ''}"
        f"{most['sender']} → {most['receiver']} ({format_number(values['communication'])}, "
        f"{name} {format_number(values[kind])})"
    )


def _remedy(run: RunDirectory, cause: str) -> str:
    if cause == "either":
        return f", {UNMEASURED}"
    return f": try {_alternatives(_for_maps(run) if cause == 'way' else _for_heads(run))}"


def _for_maps(run: RunDirectory) -> Iterator[str]:
    pilots = run.summary.get("settings", {}).get("pilots", {}).get("samples")
    sizes = [agent["dimension"] for agent in run.agents.values() if "dimension" in agent]
    if pilots is not None and sizes and pilots < max(sizes):
        yield f"at least {max(sizes)} pilots, as many as the largest latent has dimensions"
        return
    yield from _distillation(run)
    yield "more pilots"
    yield "more epochs"


def _for_heads(run: RunDirectory) -> Iterator[str]:
    yield from _distillation(run)
    yield "pilots of all classes"
    yield "more epochs"


def _distillation(run: RunDirectory) -> Iterator[str]:
    """Suggest distillation where there is none, and heads give class probabilities."""
    method = run.settings.get("method", {})
    if method.get("distillation") or "name" not in method or not is_accuracy([run]):
        return
    yield "distillation" if method["name"] == "sheaf-frl" else "Sheaf-FRL with distillation"


def _alternatives(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _compare(value: float, reference: float, name: str, greater_is_better: bool) -> str:
    difference = value - reference
    if abs(difference) < 0.0005:
        return f"equal to {name}"
    if greater_is_better:
        side = "below" if difference < 0 else "above"
    else:  # of an error "above" would sound like praise
        side = "better than" if difference < 0 else "worse than"
    return f"{format_number(abs(difference))} {side} {name}"


def _values(run: RunDirectory) -> dict[str, float]:
    """Return the means of the first metric, by kind; what was not measured is absent."""
    metric = metric_names([run])[0]
    found = {kind: run.summary.get(f"{kind}_{metric}") for kind in KINDS}
    return {kind: value for kind, value in found.items() if _known(value)}


def _measured(run: RunDirectory) -> list[Record]:
    """Return the directed edges with a value of the first metric."""
    key = f"communication_{metric_names([run])[0]}"
    return [edge for edge in run.edges if _known(edge.get(key))]


def _pair(run: RunDirectory, edge: Record) -> dict[str, float]:
    """Return the values of the first metric of a pair, and the sender's private one."""
    metric = metric_names([run])[0]
    sender = run.agents.get(edge["sender"], {})
    found = {kind: edge.get(f"{kind}_{metric}") for kind in ("communication", "oracle")}
    found["private"] = sender.get(f"private_{metric}")
    return {kind: value for kind, value in found.items() if _known(value)}


def _known(value: Any) -> TypeGuard[float]:
    return isinstance(value, float | int) and math.isfinite(value)
