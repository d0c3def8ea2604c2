"""`sheafed evaluate`: a finished run on its own or on other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from sheafed.atomic_io import make_directory, write_atomically
from sheafed.cli.allow_code import AllowCode

if TYPE_CHECKING:
    from sheafed.evaluation import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(help="a run directory, written by `sheafed run`")],
    which: Annotated[
        Literal["last", "best"],
        typer.Option(help="the network at the end, or at its best validation score"),
    ] = "last",
    split: Annotated[
        Literal["test", "validation"], typer.Option(help="which data of the run")
    ] = "test",
    data: Annotated[
        Path | None,
        typer.Option(
            help="other data: a folder with one subfolder of images per class, or an .npz file "
            "with x and y"
        ),
    ] = None,
    oracle: Annotated[
        bool, typer.Option(help="also let receivers encode the inputs themselves")
    ] = True,
    device: Annotated[
        str | None, typer.Option(help="where agents compute, if not where they were trained")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="a JSON file to write the values to")] = None,
    allow_code: AllowCode = None,
) -> None:
    """Measure a finished run; its directory is only read."""
    from sheafed.config.evaluation import evaluate_run

    found = evaluate_run(
        run,
        which=which,
        split=split,
        data=data,
        oracle=oracle,
        device=device,
        allow_code=allow_code or [],
    )
    _print(found, Console())
    if out is not None:
        make_directory(out.parent)
        write_atomically(out, json.dumps(as_json(found), indent=2).encode())
        print(f"wrote {out}")


def as_json(found: Evaluation) -> dict[str, object]:
    """Return the means, and the values by agent and by directed edge."""
    return {
        **found.summary(),
        "agents": {name: found.of_agent(name) for name in sorted(found.private)},
        "edges": [
            {"sender": sender, "receiver": receiver, **found.of_pair(sender, receiver)}
            for sender, receiver in sorted(found.communication)
        ],
    }


def _print(found: Evaluation, console: Console) -> None:
    """Print what every agent has of its own data, and what its neighbours read of them."""
    table = Table("sender", "receiver", "metric", "private", "communication", "oracle encoder")
    for name in sorted(found.private):
        table.add_row(name, "", found.metric_of(name), _shown(found.private[name]), "", "")
    for sender, receiver in sorted(found.communication):
        pair = sender, receiver
        values = [_shown(found.communication[pair]), _shown(found.oracle.get(pair))]
        table.add_row(sender, receiver, found.metric_of(sender), "", *values)
    console.print(table)
    for key, value in found.summary().items():
        console.print(f"{key} {_shown(value)}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
