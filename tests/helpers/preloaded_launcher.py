"""A launcher whose agents are forked where the libraries are loaded, which takes seconds."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sheafed.cli import main
from sheafed.network.graceful_shutdown import SIGNALS
from sheafed.network.launcher import LocalLauncher

PRELOADED = ["sheafed.cli", "sklearn.datasets", "tests.helpers.preloaded_launcher", "zenoh"]
PRELOADED += ["torch._dynamo"]  # loaded by the first step of an optimiser


class ForkedProcess:
    """The part of the interface of `subprocess.Popen` that a launcher uses."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(target=_run, args=(list(command), log))
        self._process.start()
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


class PreloadedLauncher(LocalLauncher):
    """Runs the same commands as `LocalLauncher`, each in a process of its own."""

    def _spawn(self, command: Sequence[str], log: Path) -> ForkedProcess:  # type: ignore[override]
        return ForkedProcess(command, log)


def _run(command: list[str], log: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.setsid()
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    _, _, module, *arguments = command
    assert module == "sheafed"
    sys.argv = [module, *arguments]
    main()
