"""A method of the user's own, named by a config and imported only if the user allows it.

A config may come from anyone, and importing what it names runs code. So the reader of a config
says which code is trusted, and a config alone never leads to an import.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import field
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from sheafed.errors import ConfigError, InputError
from sheafed.methods import Method
from sheafed.options import options

AllowCode = Sequence[str | Path]
"""Code that a config may name: a module as it is imported, or a file `NAME.py` of module NAME."""


@options
class CustomMethod:
    """A method of your own, which runs only if you allow its code.

    Args:
        factory: `module:name` of a class or function that returns a `sheafed.methods.Method`. The
            module must be allowed: `--allow-code` on the command line, `allow_code` in Python.
        options: the keyword arguments it is called with.
    """

    name: Literal["custom"] = field(default="custom", kw_only=True, repr=False)
    factory: str
    options: dict[str, Any] = field(default_factory=dict)

    def load(self, allow_code: AllowCode = ()) -> Method:
        """Import the factory, if its module is among the code that is allowed, and call it."""
        module, _, attribute = self.factory.partition(":")
        if not (module and attribute):
            raise ConfigError(f"method.factory must be module:name, got {self.factory!r}")
        source = _allowed(module, allow_code)
        try:
            loaded = _load_file(module, source) if source else importlib.import_module(module)
            factory = getattr(loaded, attribute)
        except (ImportError, AttributeError) as problem:
            raise ConfigError(f"method.factory {self.factory!r}: {problem}") from problem
        _check_defined_in(loaded, factory, self.factory)
        try:
            method: Method = factory(**self.options)
        except (TypeError, InputError) as problem:
            raise ConfigError(f"method.options {self.options!r}: {problem}") from problem
        return method


def _allowed(module: str, allow_code: AllowCode) -> Path | None:
    """Return the file that a module is loaded from, None if Python finds it by its name."""
    for given in allow_code:
        if Path(given).suffix == ".py":
            if Path(given).stem == module:
                return Path(given)
        elif given == module:
            return None
    allowed = ", ".join(map(str, allow_code)) or "none"
    raise ConfigError(
        f"method.factory of this config runs code of the module {module!r}, which is not allowed "
        f"(allowed: {allowed}); if you have read that code and trust it, allow it by --allow-code "
        f"{module} if it is installed, or --allow-code PATH/{module}.py (allow_code in Python)"
    )


def _load_file(module: str, path: Path) -> ModuleType:
    """Import a single file; its directory is not put on the path."""
    if not (module.isidentifier() and path.is_file()):
        raise ConfigError(f"{path}, which allow-code names, is not a file of a Python module")
    path = path.resolve()
    present = sys.modules.get(module)
    taken = present.__spec__ if present else util.find_spec(module)
    if taken is not None and (not taken.origin or Path(taken.origin).resolve() != path):
        raise ConfigError(
            f"{path} cannot be loaded: the module {module!r} is {taken.origin} already; rename the "
            "file, and method.factory"
        )
    if present:
        return present
    spec = util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None  # the name ends in .py
    loaded = sys.modules[module] = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[module]
        raise
    return loaded


def _check_defined_in(module: ModuleType, factory: object, name: str) -> None:
    """Raise if a module only imports what is to be called: not all that it uses is allowed too."""
    home = getattr(factory, "__module__", None) or ""
    package = module.__name__.partition(".")[0]
    described = inspect.isclass(factory) or inspect.isfunction(factory)
    if not described or home.partition(".")[0] != package:
        raise ConfigError(
            f"method.factory {name!r} must be a class or function that the package {package!r} "
            f"defines, got {factory!r}"
        )
