"""Libraries that only text encoders need."""

from importlib import import_module
from typing import Any

from sheafed.errors import MissingDependencyError


def required(module: str) -> Any:
    """Import an optional library, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise MissingDependencyError(
            f"this text encoder needs {module.partition('.')[0]}, which is not installed; pip "
            "install 'sheafed[text]'"
        ) from problem
