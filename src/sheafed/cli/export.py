"""`sheafed export`: the way from one agent to another as a file for other runtimes."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sheafed.cli.allow_code import AllowCode


def export(
    run: Annotated[Path, typer.Argument(help="a run directory, written by `sheafed run`")],
    sender: Annotated[str, typer.Option("--from", help="the agent that encodes")],
    receiver: Annotated[str, typer.Option("--to", help="the agent that classifies")],
    out: Annotated[Path, typer.Option(help="NAME.onnx for ONNX, NAME.pt2 for torch.export.load")],
    which: Annotated[
        Literal["last", "best"],
        typer.Option(help="the network at the end, or at its best validation score"),
    ] = "last",
    link_only: Annotated[
        bool, typer.Option("--link-only", help="leave out the encoder and the head")
    ] = False,
    allow_code: AllowCode = None,
) -> None:
    """Write encoder, link and head, or the link alone, as one file; the run is only read."""
    from sheafed.config.loading import load

    network = load(run, which=which, device="cpu", allow_code=allow_code or [])
    network.export(sender, receiver, out, link_only=link_only)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB)")
