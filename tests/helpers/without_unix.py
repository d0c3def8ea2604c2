"""A process in which what only Unix has is missing, as on Windows.

Libraries are loaded before, `sheafed` is loaded anew within it: what it takes for granted of Unix
fails here. Paths, sockets and child processes stay those of this system.
"""

import importlib
import io
import os
import pkgutil
import signal
import subprocess
import sys
import types
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

MODULES = ("resource", "fcntl", "termios", "pwd", "grp", "posix", "tty", "pty", "syslog")
FUNCTIONS = (
    *("fork", "forkpty", "getuid", "geteuid", "getgid", "setsid", "killpg", "getpgid", "nice"),
    *("O_DIRECTORY", "sched_getaffinity", "sysconf", "getloadavg", "mkfifo", "uname", "statvfs"),
)
LOADED_BEFORE = (
    *("sheafed.cli", "matplotlib.pyplot", "plotly.graph_objects", "plotly.io"),
    "sklearn.datasets",
)
"""What loads the libraries that `sheafed` needs, at once or later: they must not see another
system. A fresh process has loaded none of them."""
SIGNALS = (
    *("SIGHUP", "SIGKILL", "SIGCONT", "SIGSTOP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT"),
    *("SIGCHLD", "SIGPIPE", "pthread_sigmask", "sigwait", "alarm", "setitimer"),
)


class Hidden(MetaPathFinder):
    """Refuses to import some modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide_unix() -> None:
    """Take away what only Unix has, and forget what was loaded with it."""
    for name in LOADED_BEFORE:
        importlib.import_module(name)
    forgotten = ("sheafed", "tests", *MODULES)
    for name in [name for name in sys.modules if name.partition(".")[0] in forgotten]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hidden())
    for owner, names in ((os, FUNCTIONS), (signal, SIGNALS)):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    locked: set[tuple[int, int]] = set()

    def locking(descriptor: int, mode: int, count: int) -> None:
        """Lock by file, for this process alone, with the error that Windows raises."""
        identity = os.fstat(descriptor).st_dev, os.fstat(descriptor).st_ino
        if identity in locked:
            raise PermissionError(13, "Permission denied")
        locked.add(identity)

    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)  # type: ignore[assignment]
    signal.CTRL_BREAK_EVENT = 1  # type: ignore[attr-defined]
    subprocess.CREATE_NEW_PROCESS_GROUP = 0x200  # type: ignore[attr-defined]
    sys.platform = "win32"
    # Text files need an encoding: that of Windows is not UTF-8.
    warnings.filterwarnings("error", category=EncodingWarning, module=r"sheafed")


def import_everything() -> int:
    """Import every module of `sheafed`; return how many there are."""
    package = importlib.import_module("sheafed")
    names = [m.name for m in pkgutil.walk_packages(package.__path__, "sheafed.")]
    for name in names:
        if name != "sheafed.__main__":
            importlib.import_module(name)
    return len(names)


def run_command(*arguments: str) -> str:
    """Run `sheafed` with these arguments; return what it prints."""
    cli = importlib.import_module("sheafed.cli")
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="cp1252")) as printed:
        cli.app(list(arguments), standalone_mode=False)
        printed.flush()
    return printed.buffer.getvalue().decode("cp1252")


def use(out: Path, config: str) -> dict[str, Any]:
    """Align, train, run commands and take locks without Unix; return what there is to see."""
    hide_unix()
    count = import_everything()
    import torch

    import sheafed
    from tests.helpers.small_federations import agent, pilots

    latents = torch.randn(60, 4)
    alignment = sheafed.align({"a": latents, "b": latents @ torch.randn(4, 5)})
    agents = [agent("a|b", 4), agent("b: c", 5)]
    network = sheafed.train(
        agents, [("a|b", "b: c")], sheafed.SheafFRL(), pilots(), epochs=1, out=out / "trained"
    )
    return {
        "modules": count,
        "sent": tuple(alignment.send(latents, "a", "b").shape),
        "accuracy": network.history.last["private_accuracy"],
        "run": run_command("run", config, "--out", str(out / "run")),
        "report": run_command("report", str(out / "run"), "--out", str(out / "report.html")),
        "locks": _locks(out),
        "liveness": _liveness(),
        "memory limit": _memory_limit(out),
    }


def _locks(out: Path) -> Sequence[str]:
    """Return what a second sweep, and a second writer into the cache, are told."""
    from sheafed.errors import SweepError
    from sheafed.sweep.runner import Runner

    with Runner("digits", [], out / "sweep", 1):
        try:
            with Runner("digits", [], out / "sweep", 1):
                return []
        except SweepError as problem:
            return [str(problem)]


def _liveness() -> str:
    from sheafed.network.status import Status, liveness

    return liveness(Status("a", "training", time=0.0))


def _memory_limit(out: Path) -> str:
    from sheafed.errors import SweepError
    from sheafed.sweep.runner import Runner

    try:
        Runner("digits", [], out, 1, memory=2**30)
    except SweepError as problem:
        return str(problem)
    return ""
