"""A program: use the `sheafed` that is installed in a directory, in the current directory.

Beside it only its declared dependencies and theirs can be imported, as in an empty environment.
"""

import io
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import (
    PackageNotFoundError,
    entry_points,
    packages_distributions,
    requires,
    version,
)
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(name: str, extras: Iterable[str] = ("",), found: set[str] | None = None) -> set[str]:
    """Return a distribution and everything that it requires, as far as it is installed."""
    found = set() if found is None else found
    if name in found:
        return found
    try:
        declared = [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:
        return found
    found.add(name)
    for need in declared:
        if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras):
            closure(canonicalize_name(need.name), need.extras or ("",), found)
    return found


class OnlyDeclared(MetaPathFinder):
    """Finds modules as Python does, but none of distributions that are not required."""

    find_distributions = staticmethod(PathFinder.find_distributions)

    def __init__(self, allowed: set[str]) -> None:
        self._refused = {
            module
            for module, owners in packages_distributions().items()
            if not {canonicalize_name(owner) for owner in owners} & allowed
        }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self._refused:
            return None
        return PathFinder.find_spec(name, path, target)


def called(command: Callable[[], object], *arguments: str) -> tuple[int, str]:
    """Return the exit code of the command line and its complaints, if it failed."""
    sys.argv = ["sheafed", *arguments]
    with redirect_stderr(io.StringIO()) as complaints:
        try:
            command()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return code, complaints.getvalue() if code else ""


def main(installed: str) -> None:
    sys.path.insert(0, installed)
    sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyDeclared(closure("sheafed"))
    import torch

    import sheafed
    from sheafed.config import PRESETS, read_experiment

    assert Path(sheafed.__file__).is_relative_to(installed), sheafed.__file__
    assert find_spec("torch")
    assert not any(map(find_spec, ("pytest", "matplotlib", "plotly", "zenoh")))
    for preset in PRESETS:
        read_experiment(preset)
    agents = [
        sheafed.Agent(
            name,
            torch.nn.Linear(4, d),
            torch.nn.Linear(d, 2),
            data={"train": (torch.randn(32, 4), torch.arange(32) % 2)},
            batch_size=16,
        )
        for name, d in (("ada", 3), ("bo", 5))
    ]
    pilots = torch.randn(40, 4)
    sheafed.train(agents, [("ada", "bo")], sheafed.SheafFRL(), pilots, epochs=1, out="run")
    sheafed.align({a.name: a.encode(pilots).detach() for a in agents})
    (command,) = entry_points(group="console_scripts", name="sheafed")
    assert called(command.load(), "new", "mine") == (0, "")
    assert Path("mine.toml").exists()
    short = ["--set", "training.epochs=1", "--set", "model.members=['bo', 'eli']"]
    assert called(command.load(), "run", "digits", "--out", "cli", *short) == (0, "")
    assert Path("cli", "summary.json").exists()
    assert not Path("cli", "label_distribution.png").exists()
    code, complaint = called(command.load(), "report", "cli")
    assert (code, "pip install 'sheafed[report]'" in complaint) == (2, True), complaint
    print(f"sheafed {version('sheafed')} from {installed} works")


if __name__ == "__main__":
    main(sys.argv[1])
