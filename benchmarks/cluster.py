"""Time the paper's fifteen agents in one process and in several, interleaved.

python benchmarks/cluster.py --processes 1 2 4 --repeats 3 --set data.train_fraction=0.2
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

SAME = ("metrics.jsonl", "last.safetensors", "best.safetensors")


def train(processes: int, out: Path, overrides: list[str]) -> float:
    """Return the seconds of one run, without those that its processes take to start."""
    changes = ["training.epochs=1", "training.oracle=false", *overrides]
    command = [sys.executable, "-m", "sheafed", "run", "fifteen", "--out", str(out)]
    command += [word for change in changes for word in ("--set", change)]
    command += ["--processes", str(processes)] if processes > 1 else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return float(json.loads((out / "summary.json").read_text())["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    arguments = parser.parse_args()
    times: dict[int, list[float]] = {processes: [] for processes in arguments.processes}
    outcomes = set()
    with tempfile.TemporaryDirectory() as directory:
        for repeat in range(arguments.repeats):
            for processes in times:
                out = Path(directory) / f"{processes}-{repeat}"
                times[processes].append(train(processes, out, arguments.overrides))
                outcomes.add(tuple((out / name).read_bytes() for name in SAME))
    first = times[arguments.processes[0]]
    table = Table(
        title=f"preset fifteen, one epoch, {arguments.repeats} interleaved repeats",
        caption="identical metrics and weights" if len(outcomes) == 1 else "RESULTS DIFFER",
    )
    for heading in ("processes", "seconds", "ratio to the first", "lowest to highest ratio"):
        table.add_column(heading, justify="right")
    for processes, seconds in times.items():
        ratios = [mine / theirs for mine, theirs in zip(seconds, first, strict=True)]
        middle, spread = statistics.median(ratios), (min(ratios), max(ratios))
        cells = f"{statistics.median(seconds):.1f}", f"{middle:.2f}", "{:.2f} to {:.2f}"
        table.add_row(str(processes), *cells[:2], cells[2].format(*spread))
    Console().print(table)
    raise SystemExit(len(outcomes) != 1)


if __name__ == "__main__":
    main()
