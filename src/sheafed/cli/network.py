"""`sheafed network up | status`: a whole network of agent processes on this machine."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from sheafed.atomic_io import check_output, write_atomically
from sheafed.checkpointing.run_directory import SUMMARY
from sheafed.cli.allow_code import AllowCode, allow_code_words
from sheafed.cli.run import INTERRUPTED
from sheafed.errors import InputError, NetworkError, RunExistsError
from sheafed.network.graceful_shutdown import GRACE_SECONDS, GracefulShutdown
from sheafed.transport.zenoh.settings import import_zenoh

if TYPE_CHECKING:
    from sheafed.network.launcher import LocalLauncher

POLL_SECONDS = 0.5

app = typer.Typer(help="A whole network of agent processes on this machine.", no_args_is_help=True)


@app.command()
def up(
    config: Annotated[str, typer.Argument(help="TOML file or preset")],
    out: Annotated[Path, typer.Option(help="output directory, with a subdirectory per agent")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="override a config value, table.key=value; repeatable"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="overrides the seed of the config")] = None,
    resume: Annotated[bool, typer.Option(help="continue from the checkpoints in --out")] = False,
    deadline: Annotated[float, typer.Option(help="seconds to wait for present neighbours")] = 10.0,
    staleness: Annotated[
        int, typer.Option(help="rounds for which a message replaces missing later ones")
    ] = 2,
    grace: Annotated[
        float, typer.Option(min=0, help="seconds to finish a round after Ctrl-C before a kill")
    ] = GRACE_SECONDS,
    allow_code: AllowCode = None,
) -> None:
    """Create certificates, start a process per agent of a config, and wait for them."""
    import_zenoh()
    from sheafed.config.federation import build_federation
    from sheafed.config.reading import read_experiment
    from sheafed.network.launcher import CERTIFICATES, LocalLauncher, describe_end
    from sheafed.network.peer_summary import gather
    from sheafed.training.run_lock import run_lock
    from sheafed.transport.zenoh.certificates import make_certificates

    console, experiment = Console(), read_experiment(config, overrides or [], seed)
    check_output(out)
    if out.exists() and any(out.iterdir()) and not resume:
        raise RunExistsError(f"{out} is not empty; pass --resume, or another --out")
    graph = build_federation(experiment, only=[], allow_code=allow_code or []).graph
    with run_lock(out):
        if not (out / CERTIFICATES).exists():
            make_certificates(out / CERTIFICATES, sorted(graph))
    options = ["--deadline", str(deadline), "--staleness", str(staleness)]
    options += [part for override in overrides or [] for part in ("--set", override)]
    options += [] if seed is None else ["--seed", str(seed)]
    options += allow_code_words(allow_code)
    with (
        run_lock(out),
        GracefulShutdown(_interrupt) as shutdown,
        LocalLauncher(config, graph, out, options, grace) as launcher,
    ):
        try:
            launcher.start()
            watch(launcher, console)
        except KeyboardInterrupt:
            print("stopping all agents after their current round")
    codes = launcher.wait()
    if not console.is_terminal:
        console.print(_table(out))
    write_atomically(out / SUMMARY, json.dumps(gather(out), indent=2).encode())
    failed = sorted(name for name, code in codes.items() if code)
    if launcher.killed:
        raise NetworkError(
            f"{', '.join(launcher.killed)} did not end within {grace:g} s and lost the rounds "
            "since the last checkpoint; pass a longer --grace if rounds take long"
        )
    if failed:
        ends = (f"{n} {describe_end(codes[n])}, see {launcher.log(n)}" for n in failed)
        raise NetworkError("; ".join(ends))
    if shutdown.requested:
        print("stopped; continue with the same command and --resume", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    print(f"wrote {out}: {SUMMARY}, and a directory per agent")


@app.command()
def status(
    directory: Annotated[Path, typer.Argument(help="--out of `sheafed network up`")],
) -> None:
    """Show the state, round, metrics, traffic and difficulties of each agent."""
    from sheafed.network.status import STATUS, difficulties, read_statuses

    statuses = read_statuses(directory)
    if not statuses:
        if (directory / STATUS).is_file():
            raise InputError(f"{directory} holds one agent; give {directory.parent}, for all")
        raise InputError(
            f"{directory} has no agent with a {STATUS}; give the --out of `sheafed network up`, or "
            "the directory above those of `sheafed agent`"
        )
    Console().print(_table(directory))
    for name, found in statuses.items():
        for line in difficulties(found):
            print(f"{name}: {line}")


def watch(launcher: LocalLauncher, console: Console) -> None:
    """Say when agents start and end, until all have ended; on a terminal keep a table below."""
    from sheafed.network.launcher import START, describe_end

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    for name, process in launcher.processes.items():
        say(f"started {name}, process {process.pid}, output in {launcher.log(name)}")
    table = Live(_table(launcher.out), console=console, refresh_per_second=2)
    with table if console.is_terminal else nullcontext():
        told: dict[str, int] = {}
        while len(told) < len(launcher.processes):
            time.sleep(POLL_SECONDS)
            table.update(_table(launcher.out))
            for name, code in sorted(launcher.ended().items() - told.items()):
                again = f"; start it again by: sh {launcher.log(name).with_name(START)}"
                say(f"{name} {describe_end(code)}{again if code else ''}")
                told[name] = code


def _interrupt() -> None:
    raise KeyboardInterrupt


def _table(directory: Path) -> Table:
    from sheafed.network.status import liveness, read_statuses

    statuses = read_statuses(directory)
    metrics = {found.metric for found in statuses.values()}
    # One metric for all agents is said below the table, which has to fit 80 columns.
    one = ", ".join(metrics) if len(metrics) == 1 else None
    caption = one and f"private and communication {one.replace('_', ' ')}"
    column = ["metric"] if len(metrics) > 1 else []
    table = Table(*("agent", "state", "round"), *column, caption=caption)
    for heading in ("private", "communication", "MiB sent", "absent"):
        table.add_column(heading)
    for name, found in statuses.items():
        shown = [found.private, found.communication]
        table.add_row(
            *(name, liveness(found), f"{found.round}/{found.rounds}"),
            *([found.metric] if column else []),
            *("-" if value is None else f"{value:.3f}" for value in shown),
            *(f"{found.bytes_sent / 2**20:.1f}", ", ".join(found.absent)),
        )
    return table
