"""`sheafed report`: one page about some runs."""

from pathlib import Path
from typing import Annotated

import typer

from sheafed.errors import InputError
from sheafed.report import read_runs, write_report


def report(
    directories: Annotated[list[Path], typer.Argument(help="directories that `sheafed run` wrote")],
    out: Annotated[Path, typer.Option(help="the page to write")] = Path("report.html"),
) -> None:
    """Write one HTML page about runs: figures, graph, curves, bytes; it needs no network."""
    if out.is_dir():
        raise InputError(f"--out is a directory, {out}; give a file, e.g. {out / 'report.html'}")
    write_report(read_runs(directories), out)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")
