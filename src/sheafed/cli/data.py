"""`sheafed data list` and `sheafed data fetch`: the built-in data sets."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="The built-in data sets.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the data sets, their sources, and whether they are in the cache."""
    from sheafed.datasets import cache, catalog, texts

    table = Table("name", "samples", "classes", "shape", "source", "state")
    for name, info in catalog.DATASETS.items():
        table.add_row(
            name,
            f"{info.samples:,}",
            str(len(info.classes)),
            " x ".join(map(str, info.shape)),
            info.origin,
            "embedded" if info.remote is None else cache.cache_status(info.remote),
        )
    Console().print(table)
    table = Table("name", "texts", "classes", "source", "licence", "state")
    for name, text in texts.TEXTS.items():
        table.add_row(
            name,
            f"{text.samples:,}",
            str(len(text.classes)),
            text.origin,
            text.licence,
            cache.cache_status(text.remote),
        )
    Console().print(table)
    print(f"cache: {cache.data_directory()} (set {cache.VARIABLE} to change it)")


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="as in `sheafed data list`")],
    again: Annotated[bool, typer.Option("--again", help="replace what is in the cache")] = False,
) -> None:
    """Download a data set into the cache, checked by SHA-256; an interrupted download resumes."""
    from sheafed.datasets import cache, catalog, texts

    known = texts.TEXTS.get(name)
    dataset = known.remote if known else catalog.dataset_info(name).remote
    if dataset is None:
        print(f"{name} is embedded in scikit-learn: nothing to fetch")
        return
    directory = cache.fetch(dataset, again=again, log=print)
    print(f"{name} is complete in {directory}")
