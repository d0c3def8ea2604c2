"""The option by which a command may run code that a config names."""

from collections.abc import Sequence
from typing import Annotated

import typer

AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        help="a module, or a file NAME.py, whose code the config may run as method.factory; "
        "repeatable. Read it first: it runs with your rights"
    ),
]


def allow_code_words(allowed: Sequence[str] | None) -> list[str]:
    """Return the words that give another command the same permission."""
    return [word for each in allowed or [] for word in ("--allow-code", each)]
