"""What holds for every command."""

import subprocess
import sys
from importlib.metadata import version

SLOW = ("sklearn", "matplotlib", "optuna", "transformers", "torch._dynamo")
"""A second or so each; who needs them loads them."""


def test_the_release_is_told() -> None:
    command = [sys.executable, "-m", "sheafed", "--version"]
    assert subprocess.check_output(command, text=True).strip() == version("sheafed")


def test_the_command_line_loads_nothing_slow_that_it_may_not_need() -> None:
    code = f"import sys, sheafed.cli; print([m for m in {SLOW} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
