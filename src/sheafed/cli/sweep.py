"""`sheafed sweep`: many runs of one config, a table in the end."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from sheafed.errors import SweepError
from sheafed.experiments.config import Experiment
from sheafed.experiments.outcome import (
    as_csv,
    as_markdown,
    is_done,
    tabulate,
    validation_score,
)
from sheafed.experiments.presets import read_experiment
from sheafed.experiments.runner import Runner, failure
from sheafed.experiments.search import load_optuna, parse_range
from sheafed.experiments.search import search as search_one
from sheafed.experiments.sweep import (
    Overrides,
    Trial,
    applicable,
    check_unchanged,
    plan,
    rows,
    without_choice,
)
from sheafed.files import write_atomically


def sweep(
    config: Annotated[str, typer.Argument(help="a TOML file or a preset")],
    out: Annotated[Path, typer.Option(help="directory for the runs and the table")],
    vary: Annotated[
        list[str] | None, typer.Option(help="table.key=a,b,c, repeatable: a row per combination")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(help="a row of its own: 'table.key=a; table.key=b', repeatable"),
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(help="table.key=a,b,c: validation chooses one per row and seed"),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="table.key=low..high: like --choose, but optuna proposes the values"),
    ] = None,
    number: Annotated[
        int, typer.Option("--trials", min=1, help="runs of a --search, per row and seed")
    ] = 12,
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,2",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value for all, repeatable")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, one thread each")] = 1,
) -> None:
    """Run what is missing of a grid of variants, candidates and seeds, then tabulate."""

    def read(more: Overrides) -> Experiment:
        return read_experiment(config, [*(overrides or []), *more])

    if choose and search:
        raise SweepError("--choose and --search exclude each other; give one of them")
    variants, numbers = rows(vary or [], variant or []), parse_seeds(seeds)
    keys = [option.partition("=")[0].strip() for option in (choose or search or [])]
    for key, without in without_choice(keys, variants, read).items():
        for row in without:
            print(f"{key} does not apply to {' '.join(row)}, which is run without it")
    if search:
        trials = _search(config, overrides or [], variants, search, number, numbers, out, jobs)
    else:
        trials = plan(variants, choose or [], numbers, read)
        for trial in trials:  # a mistake in the last variant shows before the first run
            check_unchanged(trial, out, read(trial.overrides))
        done = sum(is_done(trial, out) for trial in trials)
        print(f"{len(trials)} runs, {done} done, {len(trials) - done} to go")
        with Runner(config, overrides or [], out, jobs) as runner:
            runner.run(trials)
    _complain(trials, out)
    table = tabulate(trials, out)
    write_atomically(out / "table.csv", as_csv(table).encode())
    write_atomically(out / "table.md", as_markdown(table).encode())
    Console().print(Markdown(as_markdown(table)))
    print(f"wrote {out / 'table.csv'} and {out / 'table.md'}")


def _search(
    config: str,
    overrides: list[str],
    variants: list[Overrides],
    options: list[str],
    number: int,
    seeds: list[int],
    out: Path,
    jobs: int,
) -> list[Trial]:
    """Run searches, `jobs` at a time; each is sequential."""
    ranges = {found.key: found for found in map(parse_range, options)}
    load_optuna()

    def read(more: Overrides) -> Experiment:
        return read_experiment(config, [*overrides, *more])

    own = {v: [ranges[key] for key in applicable(list(ranges), read(v))] for v in variants}
    for v, sought in own.items():  # a mistake in the last variant shows before the first run
        for end in ("low", "high"):
            read((*v, *(f"{r.key}={getattr(r, end)!r}" for r in sought)))
    total = len(seeds) * sum(number if sought else 1 for sought in own.values())
    print(f"{total} runs")
    with Runner(config, overrides, out, jobs) as runner:
        runner.expect(total)

        def score(trial: Trial) -> float | None:
            check_unchanged(trial, out, read(trial.overrides))
            return validation_score(trial, out) if runner.ensure(trial) else None

        pairs = [(v, seed) for v in variants for seed in seeds]
        found = runner.map(lambda pair: search_one(*pair, own[pair[0]], number, score), pairs)
    return [trial for trials in found for trial in trials]


def _complain(trials: list[Trial], out: Path) -> None:
    failed = [trial for trial in trials if not is_done(trial, out)]
    if failed:
        print(
            f"{len(failed)} of {len(trials)} runs failed; the others are kept, and the same "
            f"command runs these again. The first: {failed[0].directory}: "
            f"{failure(failed[0], out)}",
            file=sys.stderr,
        )


def parse_seeds(text: str) -> list[int]:
    """Read numbers like 0,1,2."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as problem:
        raise SweepError(f"--seeds must be numbers like 0,1,2, got {text!r}") from problem
