"""Every class of options that a config can reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from sheafed.config.experiment import METHODS, OBJECTIVES
from sheafed.options import OneOf


def option_classes() -> list[type]:
    """Return methods and objectives with all options nested in them, each once."""
    found: dict[type, None] = {}
    waiting: list[type] = [*METHODS, *OBJECTIVES]
    while waiting:
        cls = waiting.pop()
        if cls not in found:
            found[cls] = None
            waiting += nested_in(cls)
    return sorted(found, key=lambda cls: cls.__name__)


def nested_in(cls: type) -> list[type]:
    hints = get_type_hints(cls, include_extras=True)
    return [option for f in fields(cls) for option in _classes_in(hints[f.name])]


def _classes_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, OneOf):
            yield from metadata.tables
