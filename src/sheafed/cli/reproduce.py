"""`sheafed reproduce`: a figure or table of the paper, or the grid of cells, by one command."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


class Name(StrEnum):
    SHIFT = "shift"
    BOTTLENECK = "bottleneck"
    MEMORY = "memory"
    TRADEOFF = "tradeoff"
    GRID = "grid"


class Scale(StrEnum):
    QUICK = "quick"
    PAPER = "paper"
    FULL = "full"


def reproduce(
    name: Annotated[Name, typer.Argument(help="which figure or table")],
    out: Annotated[Path, typer.Option(help="directory for the runs, the figure and the tables")],
    scale: Annotated[
        Scale,
        typer.Option(
            help="quick: within 40 minutes on two cores, grid two hours; paper: days; full: the "
            "whole grid"
        ),
    ] = Scale.QUICK,
    jobs: Annotated[
        int, typer.Option(min=1, help="runs at a time, one thread each; all cores by default")
    ] = os.cpu_count() or 1,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="comma-separated; lambda is chosen with the first; by default 0,1,2, and five "
            "for models of the grid that train within a minute"
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="grid: the models whose cells are run, comma-separated; all are shown"),
    ] = None,
) -> None:
    """Run what is missing of a figure or table of the paper, then draw and tabulate it.

    The grid is ours: the recommended method against all others, by model, data and label shift.
    """
    from rich.markdown import Markdown

    from sheafed import reproduction
    from sheafed.sweep import parse_seeds

    given = None if seeds is None else parse_seeds(seeds)
    models = None if only is None else [model.strip() for model in only.split(",")]
    text = reproduction.reproduce(name.value, scale.value, out, given, jobs, models)
    if name is not Name.GRID:  # its table is long
        Console().print(Markdown((out / f"{name}.md").read_text(encoding="utf-8")))
    print(text)
    endings = ".pdf, .md and .json" if name is Name.GRID else ".pdf, .csv, .md and .txt"
    print(f"wrote {out / name}.png, {endings}")
