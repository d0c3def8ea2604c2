"""`sheafed bench`: speed, memory and bytes against their targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sheafed.atomic_io import write_atomically
from sheafed.errors import BenchError

if TYPE_CHECKING:
    from sheafed.bench.measurement import Measurement


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="some of processes, overhead, bytes, evaluation, layout, maps, scaling, memory; "
            "all by default"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="fewer repeats, two benchmarks at a time: noisier")
    ] = False,
    agents: Annotated[
        str | None, typer.Option(help="sizes of the networks that scaling compares, e.g. 15,200")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="file for the raw measurements")
    ] = None,
) -> None:
    """Measure ratios within interleaved runs; one thread and one process per benchmark."""
    from sheafed.bench.measurement import describe_machine
    from sheafed.bench.running import run_benchmarks

    found = run_benchmarks(names or [], quick=quick, sizes=_parse_sizes(agents))
    Console().print(_table(found))
    if json_file is not None:
        content = {
            "machine": describe_machine(),
            "quick": quick,
            "measurements": [measurement.as_dict() for measurement in found],
        }
        write_atomically(json_file, json.dumps(content, indent=2).encode())
        print(f"wrote {json_file}")


def _parse_sizes(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(size) for size in text.split(",")]
    except ValueError as problem:
        raise BenchError(f"--agents must be numbers like 15,50,200, got {text!r}") from problem


def _table(found: Sequence[Measurement]) -> Table:
    from sheafed.bench.measurement import describe_machine

    machine = describe_machine()
    title = f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}"
    table = Table("", "what", "target", "measured", "verdict", title=title)
    for row in found:
        target = f"{'≤' if row.at_most else '≥'} {row.bound:g} {row.unit}"
        measured = f"{row.measured:.2f} {row.unit}"
        table.add_row(str(row.target), row.what, target, measured, row.verdict)
    return table
