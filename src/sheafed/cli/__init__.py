"""The command line: `sheafed align | send | doctor`."""

import sys

import typer

from sheafed.cli import align, doctor
from sheafed.errors import SheafedError

app = typer.Typer(
    help="Agents that share neither data, nor model, nor latent space learn to be understood.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("align")(align.align)
app.command("send")(align.send)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run the command line; errors made on purpose are one line, without a traceback."""
    try:
        app()
    except SheafedError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
