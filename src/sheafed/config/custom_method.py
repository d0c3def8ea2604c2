"""A method of the user's own, found by its name."""

from __future__ import annotations

import importlib
import sys
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from sheafed.errors import ConfigError, InputError
from sheafed.methods import Method
from sheafed.options import options


@options
class CustomMethod:
    """A method of your own.

    Args:
        factory: `module:name` of a class or function that returns a `sheafed.methods.Method`; the
            module is found from the working directory too.
        options: the keyword arguments it is called with.
    """

    name: Literal["custom"] = field(default="custom", kw_only=True, repr=False)
    factory: str
    options: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Method:
        """Import the factory and call it."""
        module, separator, attribute = self.factory.partition(":")
        if not separator:
            raise ConfigError(f"method.factory must be module:name, got {self.factory!r}")
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            factory = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as problem:
            raise ConfigError(f"method.factory {self.factory!r}: {problem}") from problem
        try:
            method: Method = factory(**self.options)
        except (TypeError, InputError) as problem:
            raise ConfigError(f"method.options {self.options!r}: {problem}") from problem
        return method
