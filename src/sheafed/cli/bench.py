"""`sheafed bench`: speed, memory and bytes against their targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sheafed.atomic_io import make_directory, write_atomically
from sheafed.errors import BenchError

if TYPE_CHECKING:
    from sheafed.bench.baseline import Comparison
    from sheafed.bench.measurement import Measurement

ACCURACY = "accuracy"


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="some of processes, overhead, bytes, evaluation, layout, maps, scaling, memory; "
            "all by default. accuracy: what methods cost until they reach an accuracy, by name only"
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            help="fewer repeats, two benchmarks at a time: noisier; accuracy on digits, not MNIST"
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="accuracy of all fifteen agents, not of five small ones")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="directory for the curves, the picture and the table of accuracy")
    ] = Path("out/bench-accuracy"),
    seeds: Annotated[str, typer.Option(help="of accuracy, comma-separated")] = "0,1,2",
    agents: Annotated[
        str | None, typer.Option(help="sizes of the networks that scaling compares, e.g. 15,200")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="file for the raw measurements")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="with the figures that were kept on this machine; the exit code is 1 if one is "
            "worse by more than its noise",
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="the figures, for later comparisons on this machine")
    ] = False,
    kept: Annotated[Path, typer.Option(help="the file of kept figures")] = Path(
        "benchmarks/ratios.json"
    ),
) -> None:
    """Measure ratios within interleaved runs; one thread and one process per benchmark."""
    from sheafed.bench import baseline
    from sheafed.bench.measurement import describe_machine
    from sheafed.bench.running import run_benchmarks

    if compare:
        baseline.kept_figures(kept, quick=quick)  # before minutes of measuring
    others = [name for name in names or [] if name != ACCURACY]
    found = []
    if others or not names:
        found += run_benchmarks(others, quick=quick, sizes=_parse_sizes(agents))
    if ACCURACY in (names or []):
        found += _measure_accuracy(quick, full, out, seeds)
    Console().print(_table(found))
    if json_file is not None:
        content = {
            "machine": describe_machine(),
            "quick": quick,
            "measurements": [measurement.as_dict() for measurement in found],
        }
        make_directory(json_file.parent)
        write_atomically(json_file, json.dumps(content, indent=2).encode())
        print(f"wrote {json_file}")
    compared = baseline.compare(kept, found, quick=quick) if compare else []
    if compared:
        Console().print(_comparison(compared))
    if keep:
        baseline.keep(kept, found, quick=quick)
        print(f"wrote {kept}")
    if any(each.verdict == "worse" for each in compared):
        raise typer.Exit(1)


def _measure_accuracy(quick: bool, full: bool, out: Path, seeds: str) -> list[Measurement]:
    from sheafed.bench import accuracy
    from sheafed.bench.accuracy_figure import draw
    from sheafed.optional import require_extra
    from sheafed.reproduction.figures import write_files
    from sheafed.sweep import parse_seeds

    if quick and full:
        raise BenchError("--quick and --full exclude each other; give one of them")
    require_extra("report", "the picture", "matplotlib")  # before hours of training
    plan = accuracy.QUICK if quick else accuracy.FIFTEEN if full else accuracy.FIVE
    numbers = parse_seeds(seeds)
    out = out / ("quick" if quick else "full" if full else "five")
    measured, found = accuracy.measure_accuracy(plan, numbers, out)
    table = accuracy.as_markdown(found)
    out.mkdir(parents=True, exist_ok=True)
    title = f"{plan.label}, seeds {', '.join(map(str, numbers))}"
    write_files(out, ACCURACY, draw(found, title), accuracy.as_csv(found), table, f"{title}\n")
    print(f"{table}wrote {out / ACCURACY}.png, .pdf, .csv, .md and .txt")
    return measured


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
        measured = f"{row.measured:.3g} {row.unit}"
        table.add_row(str(row.target), row.what, target, measured, row.verdict)
    return table


def _comparison(compared: Sequence[Comparison]) -> Table:
    table = Table("what", "before", "now", "noise", "verdict", title="against what was kept")
    for each in compared:
        before = "-" if each.before is None else f"{each.before:.3g}"
        noise = "-" if each.before is None else f"± {each.tolerance:.2g}"
        table.add_row(each.now.what, before, f"{each.now.measured:.3g}", noise, each.verdict)
    return table
