"""`sheafed sweep`: many runs of one config, a table in the end."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from sheafed.cli.run import read_experiment
from sheafed.errors import SweepError
from sheafed.experiments.sweep import Trial, as_csv, as_markdown, is_done, plan, tabulate
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
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,2",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value for all, repeatable")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, one thread each")] = 1,
) -> None:
    """Run what is missing of a grid of variants, candidates and seeds, then tabulate."""
    trials = plan(vary or [], choose or [], _parse_seeds(seeds), variant or [])
    for trial in trials:  # a mistake in the last variant shows before the first run
        read_experiment(config, [*(overrides or []), *trial.overrides], None)
    missing = [trial for trial in trials if not is_done(trial, out)]
    print(f"{len(trials)} runs, {len(trials) - len(missing)} done, {len(missing)} to go")
    with ThreadPoolExecutor(jobs) as pool:
        failures = list(pool.map(lambda t: _run(config, overrides or [], t, out), missing))
    failed = [failure for failure in failures if failure]
    if failed:
        print(
            f"{len(failed)} of {len(missing)} runs failed; the others are kept, and the same "
            f"command runs these again. The first: {failed[0]}",
            file=sys.stderr,
        )
    rows = tabulate(trials, out)
    write_atomically(out / "table.csv", as_csv(rows).encode())
    write_atomically(out / "table.md", as_markdown(rows).encode())
    Console().print(Markdown(as_markdown(rows)))
    print(f"wrote {out / 'table.csv'} and {out / 'table.md'}")


def _run(config: str, overrides: list[str], trial: Trial, out: Path) -> str | None:
    """Run one trial in a process of its own; return what went wrong, if anything."""
    directory = out / trial.directory
    command = [sys.executable, "-m", "sheafed", "run", config, "--out", str(directory), "--resume"]
    for override in (*overrides, *trial.overrides):
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True)
    state = "done" if done.returncode == 0 else "failed"
    print(f"{state}: {' '.join(trial.overrides)}", flush=True)
    return None if done.returncode == 0 else f"{directory}: {done.stderr.strip()[-2000:]}"


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as problem:
        raise SweepError(f"--seeds must be numbers like 0,1,2, got {text!r}") from problem
