"""Figures of an earlier state, kept in a small file by machine, and what became worse since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any

from sheafed.atomic_io import write_atomically
from sheafed.bench.measurement import Measurement, describe_machine
from sheafed.errors import BenchError

STANDARD_ERRORS = 3.0
"""A change counts if it is larger than so many of its own standard errors."""
SMALLEST_CHANGE = 0.02
"""And than this part of the figure: machines differ from day to day by more than within a run."""
UNKNOWN_NOISE = 0.05
"""The assumed standard error of a figure that was measured once, as a part of it."""


@dataclass(frozen=True)
class Comparison:
    """A figure then and now."""

    now: Measurement
    before: float | None
    """None if it is new."""
    tolerance: float = 0.0

    @property
    def verdict(self) -> str:
        """`worse`, `better`, `as before` or `new`."""
        if self.before is None:
            return "new"
        change = self.now.measured - self.before
        if abs(change) <= self.tolerance:
            return "as before"
        return "worse" if (change > 0) == self.now.at_most else "better"


def machine_name() -> str:
    machine = describe_machine()
    return f"{machine['processor']}, {machine['cores']} cores"


def keep(path: Path, found: Sequence[Measurement], *, quick: bool) -> None:
    """Write figures into the file; those of other machines and benchmarks stay."""
    content = _read(path) if path.exists() else {}
    own = content.setdefault(machine_name(), {})
    own["torch"] = describe_machine()["torch"]
    figures = own.setdefault(_mode(quick), {})
    for each in found:
        noise = None if each.noise is None else _rounded(each.noise)
        figures[each.what] = {"measured": _rounded(each.measured), "noise": noise}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())


def compare(path: Path, found: Sequence[Measurement], *, quick: bool) -> list[Comparison]:
    """Compare figures with those of the same machine in a file."""
    before = kept_figures(path, quick=quick)
    return [_compared(each, before.get(each.what)) for each in found]


def kept_figures(path: Path, *, quick: bool) -> Mapping[str, Mapping[str, float | None]]:
    """Return the figures of this machine in a file; raise if there are none."""
    if not path.exists():
        raise BenchError(f"no file {path} to compare with; write one by sheafed bench --keep")
    content, machine = _read(path), machine_name()
    found = content.get(machine, {})
    before: Mapping[str, Mapping[str, float | None]] | None = found.get(_mode(quick))
    if before is None:
        known = [
            f"{_mode(other)} ones of {name}"
            for name, modes in sorted(content.items())
            for other in (False, True)
            if _mode(other) in modes
        ]
        raise BenchError(
            f"{path} has no {_mode(quick)} figures of this machine ({machine}), only "
            f"{'; '.join(known) or 'none'}; measure the earlier state here and write its figures "
            f"by sheafed bench {'--quick --keep' if quick else '--keep'}"
            + (f", or compare with{'out' if quick else ''} --quick" if found else "")
        )
    return before


def _compared(now: Measurement, before: Mapping[str, float | None] | None) -> Comparison:
    if before is None:
        return Comparison(now, None)
    measured = before["measured"]
    if measured is None:
        raise BenchError(f"the file has no figure for {now.what!r}; write it by --keep")
    errors = [
        UNKNOWN_NOISE * abs(value) if noise is None else noise
        for value, noise in ((measured, before["noise"]), (now.measured, now.noise))
    ]
    tolerance = max(STANDARD_ERRORS * hypot(*errors), SMALLEST_CHANGE * abs(measured))
    return Comparison(now, measured, tolerance)


def _mode(quick: bool) -> str:
    return "quick" if quick else "full"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BenchError(f"{path} is not a file of sheafed bench --keep ({problem})") from problem
    if not isinstance(content, dict):
        raise BenchError(f"{path} is not a file of sheafed bench --keep; delete it and keep anew")
    return content
