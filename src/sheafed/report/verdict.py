"""A run in a sentence: communication and its references, the worst pair, and what to try."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
    measured = [edge for edge in run.edges if _known(edge.get(key))]
    return min(measured, key=lambda edge: sign * edge[key], default=None)


def advice(run: RunDirectory) -> str:
    """Return what to try next, by which of the references communication falls short of."""
    values, sign = _values(run), 1 if greater_is_better(run, metric_names([run])[0]) else -1

    def lacks(kind: str) -> bool:
        if kind not in values:
            return False
        scale = 1.0 if is_accuracy([run]) else abs(values[kind])
        return sign * (values[kind] - values["communication"]) > NOTABLE * scale

    if lacks("oracle"):  # the receiver's own encoder would do better: the map loses something
        return f"latents lose on their way: try {_alternatives(_for_maps(run))}"
    if lacks("private"):  # even its own encoder would not help: its head does not know such inputs
        return f"heads know their neighbours' data too little: try {_alternatives(_for_heads(run))}"
    return "nothing notable is lost on the edges"


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


def _known(value: Any) -> TypeGuard[float]:
    return isinstance(value, float | int) and math.isfinite(value)
