"""`sheafed data list` and `sheafed data fetch`: the data sets that are known by name."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sheafed.datasets import cache, catalog

app = typer.Typer(help="The data sets that are known by name.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the data sets, where they come from, and whether they are in the cache."""
    table = Table()
    for heading in ("name", "samples", "classes", "shape", "from", "state"):
        table.add_column(heading)
    for name, known in catalog.DATASETS.items():
        table.add_row(
            name,
            f"{known.samples:,}",
            str(len(known.classes)),
            " x ".join(map(str, known.shape)),
            known.origin,
            "embedded" if known.remote is None else cache.cache_status(known.remote),
        )
    Console().print(table)
    print(f"cache: {cache.data_directory()} (set {cache.VARIABLE} to change it)")


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="as in `sheafed data list`")],
    again: Annotated[bool, typer.Option("--again", help="replace what is in the cache")] = False,
) -> None:
    """Fetch a data set into the cache, checked by SHA-256; an interrupted fetch goes on."""
    dataset = catalog.dataset_info(name).remote
    if dataset is None:
        print(f"{name} is embedded in scikit-learn: nothing to fetch")
        return
    home = cache.fetch(dataset, again=again, log=print)
    print(f"{name} is complete in {home}")
