"""`sheafed network up | status`: a whole network of agent processes on this machine."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import networkx as nx
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from sheafed.cli.run import read_experiment
from sheafed.errors import NetworkError, RunExistsError
from sheafed.exchange.credentials import credentials_in
from sheafed.exchange.zenoh_settings import import_zenoh
from sheafed.experiments.build import build
from sheafed.files import write_atomically
from sheafed.runtime.edge import SUMMARY
from sheafed.runtime.gather import gather
from sheafed.runtime.status import liveness, read_statuses

CERTIFICATES, LOG = "certificates", "log.txt"
STOP_SECONDS = 20.0

app = typer.Typer(help="A whole network of agent processes on this machine.", no_args_is_help=True)


@app.command()
def up(
    config: Annotated[str, typer.Argument(help="a TOML file, or a preset")],
    out: Annotated[Path, typer.Option(help="directory, with a subdirectory for every agent")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value, repeatable")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="instead of the config's")] = None,
    resume: Annotated[bool, typer.Option(help="go on where this directory stopped")] = False,
    deadline: Annotated[float, typer.Option(help="seconds to wait for a neighbour")] = 10.0,
    staleness: Annotated[int, typer.Option(help="rounds for which a message may stand in")] = 2,
) -> None:
    """Start an agent process per agent of a config, with certificates, and wait for them."""
    import_zenoh()
    from sheafed.exchange.certificates import make_certificates

    experiment = read_experiment(config, overrides or [], seed)
    if out.exists() and any(out.iterdir()) and not resume:
        raise RunExistsError(f"{out} is not empty; give --resume, or another --out")
    graph = build(experiment).graph
    if not (out / CERTIFICATES).exists():
        make_certificates(out / CERTIFICATES, sorted(graph))
    options = ["--deadline", str(deadline), "--staleness", str(staleness), "--resume"]
    options += [part for override in overrides or [] for part in ("--set", override)]
    options += [] if seed is None else ["--seed", str(seed)]
    commands = agent_commands(config, out, graph, options)
    codes = _attend(out, commands)
    write_atomically(out / SUMMARY, json.dumps(gather(out), indent=2).encode())
    failed = sorted(name for name, code in codes.items() if code)
    if failed:
        raise NetworkError(f"{', '.join(failed)} failed; see {out}/NAME/{LOG}")
    print(f"wrote {out}: {SUMMARY}, and a directory per agent")


@app.command()
def status(
    directory: Annotated[Path, typer.Argument(help="the --out of `sheafed network up`")],
) -> None:
    """Show who is alive, how far and how accurate, and what was sent."""
    Console().print(_table(directory))


def agent_commands(
    config: str, out: Path, graph: "nx.Graph[str]", options: Sequence[str]
) -> dict[str, list[str]]:
    """Return the command line of every agent; of two neighbours the later name dials."""
    endpoints = _endpoints(len(graph))
    at = dict(zip(sorted(graph), endpoints, strict=True))
    commands = {}
    for name in sorted(graph):
        own = credentials_in(out / CERTIFICATES, name)
        command = [sys.executable, "-m", "sheafed", "agent", config, "--name", name]
        command += ["--listen", at[name], "--out", str(out / name), *options]
        command += ["--cert", str(own.certificate), "--key", str(own.key)]
        command += ["--ca", str(own.authority)]
        for j in sorted(graph.neighbors(name)):
            command += ["--connect", at[j]] if j < name else []
        commands[name] = command
    return commands


def start(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start one agent; what it prints is added to a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        # A session of its own, so that Ctrl-C reaches it once, and from here.
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def _attend(out: Path, commands: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Run agents to their end, showing how they are; end them all if this process is to end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as running:
        agents = {}
        for name, command in commands.items():
            agents[name] = start(command, out / name / LOG)
            running.callback(_end, agents[name])
        try:
            with Live(_table(out), refresh_per_second=2) as live:
                while any(agent.poll() is None for agent in agents.values()):
                    time.sleep(0.5)
                    live.update(_table(out))
        except KeyboardInterrupt:
            print("ending all agents after their current round")
            for agent in agents.values():
                agent.send_signal(signal.SIGINT)
    return {name: agent.wait() for name, agent in agents.items()}


def _end(agent: "subprocess.Popen[bytes]") -> None:
    """Let an agent write its checkpoint; if it does not end then, kill it."""
    if agent.poll() is None:
        agent.send_signal(signal.SIGINT)
    try:
        agent.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        agent.kill()


def _endpoints(count: int) -> list[str]:
    """Return addresses with ports that are free, all different."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"tls/127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def _table(directory: Path) -> Table:
    table = Table()
    for heading in ("agent", "state", "round", "private", "communicated", "MiB sent", "without"):
        table.add_column(heading)
    for name, found in read_statuses(directory).items():
        shown = [found.private_accuracy, found.communication_accuracy]
        table.add_row(
            *(name, liveness(found), f"{found.round}/{found.rounds}"),
            *("-" if value is None else f"{value:.3f}" for value in shown),
            *(f"{found.bytes_sent / 2**20:.1f}", ", ".join(found.absent)),
        )
    return table
