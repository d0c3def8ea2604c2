"""`sheafed sweep`: many runs of one config, a table in the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sheafed.atomic_io import write_atomically
from sheafed.cli.allow_code import AllowCode
from sheafed.errors import SweepError

if TYPE_CHECKING:
    from sheafed.sweep.trials import Trial


def sweep(
    config: Annotated[str, typer.Argument(help="a TOML file or a preset")],
    out: Annotated[Path, typer.Option(help="directory for the runs and the tables")],
    vary: Annotated[
        list[str] | None, typer.Option(help="table.key=a,b,c, repeatable: a row per combination")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(help="a row of its own: 'table.key=a; table.key=b', repeatable"),
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            help="table.key=a,b,c: the validation score chooses one value per row and seed"
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="table.key=low..high: like --choose, but Optuna proposes the values"),
    ] = None,
    number: Annotated[
        int, typer.Option("--trials", min=1, help="runs of a --search, per row and seed")
    ] = 12,
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,2",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="table.key=value for all runs, repeatable"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, one thread each")] = 1,
    allow_code: AllowCode = None,
) -> None:
    """Run what is missing of a grid of variants, candidates and seeds; write a table of results."""
    from sheafed.sweep.bracketing import edge_notes
    from sheafed.sweep.results import as_csv, as_markdown, tabulate
    from sheafed.sweep.runner import Runner
    from sheafed.sweep.search import parse_range, search_all
    from sheafed.sweep.terminal import as_table
    from sheafed.sweep.trials import (
        expand_variants,
        key_of,
        make_trials,
        parse_seeds,
        variants_without,
    )

    if choose and search:
        raise SweepError("--choose and --search exclude each other; give one of them")
    runner = Runner(config, overrides or [], out, jobs, allow_code=allow_code or [])
    variants, numbers = expand_variants(vary or [], variant or []), parse_seeds(seeds)
    keys = [key_of(option) for option in choose or search or []]
    for key, without in variants_without(keys, variants, runner.experiment).items():
        for row in without:
            print(f"{key} does not apply to {' '.join(row)}, which is run without it")
    if search:
        trials = search_all(runner, variants, [parse_range(s) for s in search], number, numbers)
    else:
        trials = make_trials(variants, choose or [], numbers, runner.experiment)
        runner.check(trials)  # report mistakes before the first run
        with runner:
            runner.run(trials)
    _print_failures(trials, out)
    table = tabulate(trials, out)
    for note in edge_notes(trials, table) if choose else []:
        print(note)
    write_atomically(out / "table.csv", as_csv(table).encode())
    write_atomically(out / "table.md", as_markdown(table).encode())
    console = Console()
    console.print(as_table(table, console.width))
    print(f"wrote {out / 'table.csv'} and {out / 'table.md'}")


def _print_failures(trials: list[Trial], out: Path) -> None:
    from sheafed.sweep.results import is_finished
    from sheafed.sweep.runner import read_failure

    failed = [trial for trial in trials if not is_finished(trial, out)]
    if failed:
        print(
            f"{len(failed)} of {len(trials)} runs failed; the others are kept, and the same "
            f"command runs the failed ones again. The first: {failed[0].directory}: "
            f"{read_failure(failed[0], out)}",
            file=sys.stderr,
        )
