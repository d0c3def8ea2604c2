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
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(module), *vars(module).get("__all__", ())})

    return load, names


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
