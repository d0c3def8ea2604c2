"""`sheafed report`: one HTML page about one or more runs."""

from pathlib import Path
from typing import Annotated

import typer

from sheafed.errors import InputError


def report(
    directories: Annotated[
        list[Path], typer.Argument(help="run directories, of `sheafed run` or `train(out=...)`")
    ],
    out: Annotated[Path, typer.Option(help="the HTML file to write")] = Path("report.html"),
) -> None:
    """Write one interactive HTML page about runs: accuracies, graph, curves, bytes."""
    from sheafed.report import read_runs, write_report  # needs plotly

    if out.is_dir():
        raise InputError(f"--out is a directory, {out}; give a file, e.g. {out / 'report.html'}")
    write_report(read_runs(directories), out)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")
