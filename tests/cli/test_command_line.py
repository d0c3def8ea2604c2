"""What holds for every command."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from sheafed.alignment.kinds import KINDS
from sheafed.bench.running import BENCHMARKS

SLOW = ("torch", "numpy", "scipy", "sklearn", "networkx", "matplotlib", "optuna", "transformers")
SLOW += ("zenoh", "cryptography")
"""Up to a second each; loaded where they are needed."""
CHECK = f"""
import sys
from sheafed.cli import main

for arguments in ("--help", "--version", "run --help", "align --help", "new x", "data list"):
    sys.argv = ["sheafed", *arguments.split()]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
sys.exit([name for name in {SLOW} if name in sys.modules])
"""


def test_the_version_is_printed(run) -> None:
    assert run("--version")[:2] == (0, f"{version('sheafed')}\n")


def test_commands_load_nothing_slow_that_they_do_not_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHECK]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.stderr == "[]\n"


def test_a_shell_completes_commands_without_what_is_slow(tmp_path: Path) -> None:
    words = {"_SHEAFED_COMPLETE": "complete_bash", "COMP_WORDS": "sheafed ev", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", CHECK]
    environment = {**os.environ, **words}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert (set(ended.stdout.split()), ended.stderr) == ({"evaluate"}, "[]\n")


def test_the_help_names_what_there_is(run) -> None:
    """It is written out, since the tables themselves would load PyTorch."""
    for command, names in (("align", KINDS), ("bench", BENCHMARKS)):
        shown = run(command, "--help")[1]
        assert [name for name in names if name not in shown] == []


def test_unknown_commands_and_options_are_named(run) -> None:
    for arguments, name in ((["fly"], "fly"), (["run", "digits", "--speed", "9"], "--speed")):
        code, printed, error = run(*arguments)
        assert (code, printed) == (2, "")
        assert "No such" in error
        assert name in error
