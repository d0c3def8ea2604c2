"""What holds for every command."""

import subprocess
import sys
from importlib.metadata import version

SLOW = ("sklearn", "matplotlib", "optuna", "transformers", "torch._dynamo", "zenoh", "cryptography")
"""A second or so each; loaded where they are needed."""


def test_the_version_is_printed(run) -> None:
    assert run("--version")[:2] == (0, f"{version('sheafed')}\n")


def test_the_command_line_loads_nothing_slow_that_it_may_not_need() -> None:
    code = f"import sys, sheafed.cli; print([m for m in {SLOW} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_unknown_commands_and_options_are_named(run) -> None:
    for arguments, name in ((["fly"], "fly"), (["run", "digits", "--speed", "9"], "--speed")):
        code, printed, error = run(*arguments)
        assert (code, printed) == (2, "")
        assert "No such" in error
        assert name in error
