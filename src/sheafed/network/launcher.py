"""A network whose agents are processes of this machine, on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import networkx as nx

from sheafed.network.graceful_shutdown import signals_blocked
from sheafed.network.status import Status, read_statuses
from sheafed.transport.zenoh.credentials import credentials_in

CERTIFICATES, LOG = "certificates", "log.txt"
GRACE_SECONDS = 60.0


class LocalLauncher:
    """Starts `sheafed agent` per agent of a graph; ends those that still run when it is left.

    Args:
        config: a TOML file, or a preset.
        graph: who talks to whom.
        out: with the certificates, and a directory for every agent, where its log goes too.
        options: more of the command line of each agent.
        grace: seconds for an agent to finish its round when it is to end, before it is killed.
    """

    def __init__(
        self,
        config: str,
        graph: nx.Graph[str],
        out: Path,
        options: Sequence[str] = (),
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.out, self.grace = out, grace
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.endpoints = dict(zip(sorted(graph), _free_endpoints(len(graph)), strict=True))
        self.commands = {
            name: self._command(config, name, sorted(graph.neighbors(name)), options)
            for name in sorted(graph)
        }

    def start(self, *names: str) -> None:
        """Start some agents, by default all; an agent that has a checkpoint goes on from it."""
        for name in names or self.commands:
            log = self.out / name / LOG
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file, signals_blocked():
                # A session of its own, so that Ctrl-C reaches it once, and from here.
                self.running[name] = subprocess.Popen(
                    self.commands[name],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    @property
    def under_way(self) -> bool:
        """Whether any agent still runs."""
        return any(agent.poll() is None for agent in self.running.values())

    def send_signal(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to some agents, by default all that run."""
        for name in names or self.running:
            if self.running[name].poll() is None:
                self.running[name].send_signal(number)

    def statuses(self) -> Mapping[str, Status]:
        """Return how the agents say they are."""
        return read_statuses(self.out)

    def wait(self, seconds: float | None = None) -> dict[str, int]:
        """Wait for all agents to end; return their exit codes."""
        end = None if seconds is None else time.monotonic() + seconds
        return {
            name: agent.wait(None if end is None else max(0.0, end - time.monotonic()))
            for name, agent in self.running.items()
        }

    def __enter__(self) -> LocalLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        """Let who still runs finish its round and write its checkpoint; kill who does not."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGINT)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.wait(self.grace)
        finally:  # also when Ctrl-C comes again
            self.send_signal(signal.SIGKILL)
            self.wait()

    def _command(
        self, config: str, name: str, neighbours: Sequence[str], options: Sequence[str]
    ) -> list[str]:
        own = credentials_in(self.out / CERTIFICATES, name)
        command = [sys.executable, "-m", "sheafed", "agent", config, "--name", name, "--resume"]
        command += ["--out", str(self.out / name), "--listen", self.endpoints[name], *options]
        command += ["--cert", str(own.certificate), "--key", str(own.key)]
        command += ["--ca", str(own.authority)]
        for j in neighbours:  # of two neighbours the one with the later name dials
            command += ["--connect", self.endpoints[j]] if j < name else []
        return command


def _free_endpoints(count: int) -> list[str]:
    """Return loopback addresses with ports that are free, all different."""
    with ExitStack() as held:
        evaluation_pilots = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in evaluation_pilots:
            probe.bind(("127.0.0.1", 0))
        return [f"tls/127.0.0.1:{probe.getsockname()[1]}" for probe in evaluation_pilots]
