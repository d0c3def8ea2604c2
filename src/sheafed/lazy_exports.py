"""Packages whose names are loaded when they are first used (PEP 562).

PyTorch takes a second to load, and every command would wait for a package that imports it,
`sheafed --help` too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports names on their first use.

    The names are those that it imports under `if TYPE_CHECKING`, where type checkers and editors
    see them. Submodules are found too, as if they had been imported.

    Args:
        package: its `__name__`.
    """
    module = sys.modules[package]
    source = module.__loader__.get_source(package)  # type: ignore[union-attr]
    homes = {name: home for name, home in _deferred_imports(source).items() if home != package}

    def load(name: str) -> object:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            setattr(module, name, value)
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        hint = _elsewhere(name, package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def names() -> list[str]:
        return sorted({*vars(module), *vars(module).get("__all__", ())})

    return load, names


def _elsewhere(name: str, package: str) -> str:
    """Return where the root package or one below it has a name in `__all__`; import nothing."""
    if name.startswith("_"):
        return ""
    from pkgutil import iter_modules  # here, as only an error needs it

    root = sys.modules[package.partition(".")[0]]
    below = (f"{root.__name__}.{module.name}" for module in iter_modules(root.__path__))
    homes = [home for home in (root.__name__, *below) if name in _listed_names(home, name)]
    return f"; {name} is in {' and in '.join(homes)}" if homes else ""


def _listed_names(module: str, wanted: str) -> set[object]:
    """Return the strings of the `__all__` of a module, if its source has the wanted one at all."""
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec else ""  # type: ignore[union-attr]
    if not source or f'"{wanted}"' not in source:
        return set()
    return {
        part.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
        for part in ast.walk(statement.value)
        if isinstance(part, ast.Constant)
    }


def _deferred_imports(source: str) -> dict[str, str]:
    """Return the module of each name that is imported under `if TYPE_CHECKING`."""
    return {
        name.name: statement.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for name in statement.names
    }
