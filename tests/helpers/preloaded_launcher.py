"""A launcher whose agents are forked where the libraries are loaded."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sheafed.cli import main
from sheafed.network.graceful_shutdown import SIGNALS
from sheafed.network.launcher import LocalLauncher
from tests.helpers import warm_processes


class ForkedProcess:
    """A command of `sheafed` in a process of its own, with what a launcher uses of `Popen`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._process = warm_processes.start(_run, list(command), log)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired([], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


class PreloadedLauncher(LocalLauncher):
    """Runs the same commands as `LocalLauncher`, each in a process of its own."""

    def _spawn(self, command: Sequence[str], log: Path) -> ForkedProcess:  # type: ignore[override]
        return ForkedProcess(command, log)


def _run(command: list[str], log: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    os.setsid()
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.argv = command[command.index("-m") + 1 :]
    main()
