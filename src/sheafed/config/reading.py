"""From a TOML file and overrides of the command line to an experiment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sheafed.config.experiment import Experiment
from sheafed.errors import ConfigError
from sheafed.options import explain


def read(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read a TOML file and apply `table.key=value` overrides."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as problem:
        raise ConfigError(f"cannot read {path} ({problem.strerror})") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem
    return parse(tables, overrides, origin=str(path))


def parse(
    tables: Mapping[str, Any], overrides: Sequence[str] = (), origin: str = "the config"
) -> Experiment:
    """Check nested tables, after `table.key=value` overrides, and fill in the defaults."""
    merged = _copy(tables)
    # Another method has other options: its name first, which drops those of the file's method.
    for override in sorted(overrides, key=lambda o: o.partition("=")[0].strip() != "method.name"):
        _apply(merged, override)
    try:
        return Experiment.model_validate(merged)
    except ValidationError as problem:
        raise ConfigError(f"{origin} cannot be used: {explain(problem, merged)}") from None


def _apply(tables: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path):
        raise ConfigError(f"expected an override like training.epochs=5, got {override!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word needs no quotation marks on a command line
    *parents, last = path
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{override!r}: {parent!r} is a value and has no keys")
    if path == ["method", "name"] and value != tables.get("name", "sheaf-frl"):
        tables.clear()
    tables[last] = value


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return value
