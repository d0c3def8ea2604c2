"""A process that has loaded everything, from which `sheafed` commands are forked one by one.

Loading takes seconds, more than a small run. On standard input the server reads the arguments of a
command, a JSON list in a line; when it has ended, its exit code and its standard error are a line
on standard output. Forked before anything is computed, a command gives the same bytes as one in a
new process.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from sheafed.cli import main
from sheafed.optional import is_installed

PRELOADED = ("sheafed.config.running", "torch._dynamo")  # the latter by the first optimiser
OPTIONAL = ("matplotlib.figure",)

Handler = Callable[[int, FrameType | None], object] | int | None


def serve(ctrl_c: Handler) -> list[str] | None:
    """Fork a process per request: return its arguments there, and None here after the last.

    Args:
        ctrl_c: what a command does on Ctrl-C, which this process ignores.
    """
    running: int | None = None

    def terminate(number: int, frame: FrameType | None) -> None:
        if running is None:
            sys.exit(128 + number)
        with suppress(ProcessLookupError):
            os.kill(running, number)

    signal.signal(signal.SIGTERM, terminate)
    for request in sys.stdin:
        reading, writing = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        running = os.fork()
        if running == 0:
            os.close(reading)
            _become_command(writing, ctrl_c)
            arguments: list[str] = json.loads(request)
            return arguments
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.close(writing)
        with open(reading, encoding="utf-8", errors="replace") as stream:
            errors = stream.read()
        _, status = os.waitpid(running, 0)
        running = None
        print(json.dumps([os.waitstatus_to_exitcode(status), errors]), flush=True)
    return None


def _become_command(errors: int, ctrl_c: Handler) -> None:
    """Have the signals and streams of a command, but for errors, which the server reads."""
    signal.signal(signal.SIGINT, ctrl_c)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, stream in (nothing, 0), (nothing, 1), (errors, 2):
        os.dup2(source, stream)
    os.close(nothing)
    os.close(errors)


if __name__ == "__main__":
    ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignored already under nohup
    for module in (*PRELOADED, *(name for name in OPTIONAL if is_installed(name.split(".")[0]))):
        importlib.import_module(module)
    arguments = serve(ctrl_c)
    if arguments is not None:
        sys.argv = ["sheafed", *arguments]
        main()
