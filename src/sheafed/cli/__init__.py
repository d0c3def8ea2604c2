"""The command line: `sheafed run`, `sweep`, `reproduce`, `align`, `agent` and more."""

import re
import sys
from typing import Annotated

import typer

from sheafed import __version__
from sheafed.cli import (
    agent,
    align,
    bench,
    data,
    doctor,
    encode,
    encoders,
    evaluate,
    export,
    network,
    report,
    reproduce,
    run,
    sweep,
)
from sheafed.errors import SheafedError

OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory", re.IGNORECASE)
"""How torch says it."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("new")(run.new)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("encode")(encode.encode)
app.command("align")(align.align)
app.command("send")(align.send)
app.command("report")(report.report)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)
app.command("agent")(agent.agent)
app.command("relay")(agent.relay)
app.command("certs")(agent.certs)
app.add_typer(data.app, name="data")
app.add_typer(encoders.app, name="encoders")
app.add_typer(network.app, name="network")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def sheafed(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="print the version"),
    ] = False,
) -> None:
    """Representation learning for agents that share neither data, model nor latent space."""


def main() -> None:
    """Run the command line; an expected error is one line, without a traceback.

    So is a file that cannot be read or written.
    """
    try:
        app()
    except SheafedError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(2) from error
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error))):
            raise
        reason = str(error).partition("\n")[0]
        print(f"error: not enough memory ({reason}); take smaller models or data", file=sys.stderr)
        raise SystemExit(2) from error
