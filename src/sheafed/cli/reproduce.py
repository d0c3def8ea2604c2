"""`sheafed reproduce`: a figure or table of the paper by one command."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from sheafed import reproduction
from sheafed.sweep import parse_seeds


class Name(StrEnum):
    SHIFT = "shift"
    BOTTLENECK = "bottleneck"
    MEMORY = "memory"
    TRADEOFF = "tradeoff"


class Scale(StrEnum):
    QUICK = "quick"
    PAPER = "paper"


def reproduce(
    name: Annotated[Name, typer.Argument(help="which figure or table")],
    out: Annotated[Path, typer.Option(help="directory for the runs, the figure and the tables")],
    scale: Annotated[
        Scale, typer.Option(help="quick: within 40 minutes on two cores; paper: days")
    ] = Scale.QUICK,
    jobs: Annotated[
        int, typer.Option(min=1, help="runs at a time, one thread each; all cores by default")
    ] = os.cpu_count() or 1,
    seeds: Annotated[
        str, typer.Option(help="comma-separated; lambda is chosen with the first")
    ] = "0,1,2",
) -> None:
    """Run what is missing of a figure or table of the paper, then draw and tabulate it."""
    text = reproduction.reproduce(name.value, scale.value, out, parse_seeds(seeds), jobs)
    Console().print(Markdown((out / f"{name}.md").read_text(encoding="utf-8")))
    print(text)
    print(f"wrote {out / name}.png, .pdf, .csv, .md and .txt")
