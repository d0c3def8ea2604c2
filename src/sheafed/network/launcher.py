"""A network whose agents are processes of this machine, connected over loopback."""

from __future__ import annotations

import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import networkx as nx

from sheafed.atomic_io import file_name, make_directory, write_atomically
from sheafed.network.graceful_shutdown import GRACE_SECONDS, signals_blocked
from sheafed.network.status import Status, read_statuses
from sheafed.transport.zenoh import credentials_in

CERTIFICATES, LOG = "certificates", "log.txt"
START = "start.sh"
"""The command of an agent, to start it again by hand while the others go on."""

# Agents do not get the Ctrl-C of the terminal: each is told to end once, by these signals.
APART: dict[str, Any]
if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    END = (signal.CTRL_BREAK_EVENT,)
else:
    APART = {"start_new_session": True}
    END = (signal.SIGCONT, signal.SIGINT)  # those that are stopped too


class LocalLauncher:
    """Starts one `sheafed agent` per agent of a graph; on exit it stops those that still run.

    Args:
        config: a TOML file, or a preset.
        graph: the agents and their neighbours.
        out: with the certificates, and a directory per agent, which also gets its log.
        options: further command line arguments of each agent.
        grace: seconds for an agent to finish its round on exit, before it is killed.
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
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []
        """Agents that did not end within the grace period."""
        self.endpoints = dict(zip(sorted(graph), free_endpoints(len(graph)), strict=True))
        self.commands = {
            name: self._command(config, name, sorted(graph.neighbors(name)), options)
            for name in sorted(graph)
        }

    def start(self, *names: str) -> None:
        """Start some agents, all by default; an agent with a checkpoint continues from it."""
        for name in names or self.commands:
            log = self.log(name)
            make_directory(log.parent, private=True)
            write_atomically(log.with_name(START), self._script(name).encode())
            with signals_blocked():  # until it is noted: it would never be stopped
                self.processes[name] = self._spawn(self.commands[name], log)

    def _script(self, name: str) -> str:
        return f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(self.commands[name])}\n"

    def ended(self) -> dict[str, int]:
        """Return the exit codes of the agents that have ended so far."""
        codes = {name: process.poll() for name, process in self.processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def log(self, name: str) -> Path:
        """Return the file with the output of an agent."""
        return self.out / file_name(name) / LOG

    def send_signal(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to some agents, by default to all that run."""
        for name in names or self.processes:
            if self.processes[name].poll() is None:
                self.processes[name].send_signal(number)

    def statuses(self) -> Mapping[str, Status]:
        return read_statuses(self.out)

    def wait(self, seconds: float | None = None) -> dict[str, int]:
        """Wait until all agents have ended; return their exit codes."""
        end = None if seconds is None else time.monotonic() + seconds
        return {
            name: process.wait(None if end is None else max(0.0, end - time.monotonic()))
            for name, process in self.processes.items()
        }

    def __enter__(self) -> LocalLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        """Let running agents finish their round and write a checkpoint, then kill the rest."""
        for number in END:
            self.send_signal(number)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.wait(self.grace)
        finally:  # also on another Ctrl-C
            self.killed = sorted(self.processes.keys() - self.ended().keys())
            for process in self.processes.values():
                process.kill()
            self.wait()

    def _spawn(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **APART)

    def _command(
        self, config: str, name: str, neighbours: Sequence[str], options: Sequence[str]
    ) -> list[str]:
        own = credentials_in(self.out / CERTIFICATES, name)
        command = [sys.executable, "-P", "-m", "sheafed", "agent", config]
        command += ["--name", name, "--resume"]
        command += [
            "--out",
            str(self.out / file_name(name)),
            "--log",
            str(self.log(name)),
            "--listen",
            self.endpoints[name],
            *options,
        ]
        command += ["--cert", str(own.certificate), "--key", str(own.key)]
        command += ["--ca", str(own.authority)]
        command += [] if own.revoked is None else ["--revoked", str(own.revoked)]
        for j in neighbours:  # of two neighbours, the one with the later name connects
            command += ["--connect", self.endpoints[j]] if j < name else []
        return command


def describe_end(code: int) -> str:
    """Return how a process has ended, by its exit code.

    >>> describe_end(0), describe_end(2), describe_end(-9)
    ('has ended', 'failed with exit code 2', 'was killed by SIGKILL')
    """
    if code >= 0:
        return f"failed with exit code {code}" if code else "has ended"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"


def free_endpoints(count: int) -> list[str]:
    """Return loopback addresses with unused ports, all different.

    Below those that systems give to outgoing connections, one of which could take a port before
    the agent does.
    """
    draw, found = random.SystemRandom(), set[int]()
    while len(found) < count:
        port = draw.randrange(10_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return [f"tls/127.0.0.1:{port}" for port in found]
