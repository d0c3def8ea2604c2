"""`sheafed bench`: what is measured of speed, memory and bytes, against its targets."""

import json
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from sheafed.atomic_io import write_atomically
from sheafed.bench import AGENTS, BENCHMARKS, measure
from sheafed.bench.workers import fresh_processes
from sheafed.errors import BenchError

BY_THE_CLOCK = "processes"
QUICK_AGENTS = (15, 200)


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="some of " + ", ".join(BENCHMARKS) + "; all if none")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="fewer repeats, two benchmarks at a time: noisier figures")
    ] = False,
    agents: Annotated[
        str | None, typer.Option(help="sizes of the networks that growth compares")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="where to write the raw figures")
    ] = None,
) -> None:
    """Measure, as ratios inside interleaved runs, one thread and one process per benchmark."""
    unknown = sorted(set(names or []) - set(BENCHMARKS))
    if unknown:
        choices = ", ".join(BENCHMARKS)
        raise BenchError(f"there is no benchmark {', '.join(unknown)}; there are {choices}")
    counts = agents or ",".join(map(str, QUICK_AGENTS if quick else AGENTS))
    if not all(count.isdigit() and int(count) > 4 for count in counts.split(",")):
        raise BenchError(f"--agents must be numbers above 4 like 15,50,200, got {counts!r}")
    sizes = [int(count) for count in counts.split(",")]
    chosen = list(names or BENCHMARKS)
    alone = [name for name in chosen if name == BY_THE_CLOCK]
    # The others count CPU seconds, which a busy machine disturbs less.
    rest = [name for name in chosen if name != BY_THE_CLOCK]
    found = []
    with fresh_processes(2 if quick else 1) as pool:
        for group in (alone, rest):
            running = [pool.submit(measure, name, quick, sizes) for name in group]
            found += [each.as_dict() for benchmark in running for each in benchmark.result()]
    Console().print(_table(found))
    if json_file is not None:
        content = {"machine": machine(), "quick": quick, "measurements": found}
        write_atomically(json_file, json.dumps(content, indent=2).encode())
        print(f"wrote {json_file}")


def machine() -> dict[str, str | int]:
    """Describe where the figures were taken."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _table(found: list[dict[str, Any]]) -> Table:
    about = machine()
    table = Table(title=f"{about['processor']}, {about['cores']} cores, torch {about['torch']}")
    for heading in ("", "what", "target", "measured", "verdict"):
        table.add_column(heading)
    for row in sorted(found, key=lambda row: row["target"]):
        sign, unit = ("≤" if row["at_most"] else "≥"), row["unit"]
        target, measured = f"{sign} {row['bound']:g} {unit}", f"{row['measured']:.2f} {unit}"
        table.add_row(str(row["target"]), row["what"], target, measured, row["verdict"])
    return table
