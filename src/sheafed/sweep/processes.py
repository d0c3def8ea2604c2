"""Processes for `sheafed` commands, one after the other: new ones, or forks of a loaded one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

if sys.platform == "linux":
    import resource

PYTHON = (sys.executable, "-P", "-m")
CAN_FORK = sys.platform == "linux"
"""Elsewhere a fork of a process that has loaded numerical libraries may crash, or is unknown."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    errors: str


class Processes(Protocol):
    """Runs commands, one at a time."""

    def start(self, arguments: Sequence[str]) -> None:
        """Start `sheafed` with these arguments; its standard output is dropped."""

    def wait(self) -> Ended:
        """Wait until it has ended."""

    def terminate(self) -> None:
        """End it; called by another thread."""

    def close(self) -> None:
        """Free what is held, after the last command."""


class NewProcesses:
    """Every command in a process that loads everything anew.

    Args:
        inherited: descriptors that the processes hold as well.
        memory: an upper limit for the address space of a process, in bytes; only on Linux.
    """

    def __init__(self, inherited: Sequence[int], memory: int | None = None) -> None:
        self._inherited, self._memory = tuple(inherited), memory

    def start(self, arguments: Sequence[str]) -> None:
        self._running = subprocess.Popen(
            [*PYTHON, "sheafed", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            pass_fds=self._inherited,
        )
        if sys.platform == "linux" and self._memory is not None:
            resource.prlimit(self._running.pid, resource.RLIMIT_AS, (self._memory, self._memory))

    def wait(self) -> Ended:
        _, errors = self._running.communicate()
        return Ended(self._running.returncode, errors)

    def terminate(self) -> None:
        self._running.terminate()

    def close(self) -> None:
        pass


class ForkedProcesses:
    """Every command in a fork of one process, which has loaded everything.

    Args:
        inherited: descriptors that the processes hold as well.
    """

    def __init__(self, inherited: Sequence[int]) -> None:
        self._inherited = tuple(inherited)
        self._server: subprocess.Popen[str] | None = None

    def start(self, arguments: Sequence[str]) -> None:
        if self._server is None:
            self._server = subprocess.Popen(
                [*PYTHON, "sheafed.cli.fork_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                pass_fds=self._inherited,
            )
        with suppress(BrokenPipeError):  # it has been killed: `wait` says so
            print(json.dumps(arguments), file=self._server.stdin, flush=True)

    def wait(self) -> Ended:
        server = self._server
        assert server is not None
        assert server.stdout is not None
        if answer := server.stdout.readline():
            return Ended(*json.loads(answer))
        self._server = None
        server.communicate()
        reason = f"the process that it was forked from ended with code {server.returncode}"
        return Ended(server.returncode or 1, reason)

    def terminate(self) -> None:
        server = self._server  # once: the thread that waits forgets it when it has ended
        if server is not None:
            server.terminate()  # it passes the signal on

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
