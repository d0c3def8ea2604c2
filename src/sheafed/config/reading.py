"""From a preset or a TOML file, and overrides of the command line, to an experiment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sheafed.config.experiment import Experiment
from sheafed.config.presets import PRESETS
from sheafed.errors import ConfigError
from sheafed.options import explain

TOO_DEEP = "it is nested too deeply"


def read_experiment(
    config: str | Path, overrides: Sequence[str] = (), seed: int | None = None
) -> Experiment:
    """Read a preset or a TOML file.

    >>> read_experiment("digits", ["training.epochs=5"]).training.epochs
    5

    Args:
        config: the name of a preset, or a path.
        overrides: `table.key=value`, with values as TOML writes them; words need no quotes.
        seed: replaces that of the config.
    """
    if seed is not None:
        overrides = [*overrides, f"seed={seed}"]
    path = Path(config)
    if config in PRESETS:
        text = (
            resources.files("sheafed.config")
            .joinpath("toml", f"{config}.toml")
            .read_text(encoding="utf-8")
        )
        return parse_experiment(_parse_toml(text, config), overrides, origin=f"preset {config}")
    if not path.exists():
        raise ConfigError(
            f"there is neither a file nor a preset named {str(config)!r}; presets are "
            f"{', '.join(PRESETS)}, and `sheafed new NAME` writes a file to start from"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot read {path} ({problem.strerror})") from problem
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem
    return parse_experiment(_parse_toml(text, path), overrides, origin=str(path))


def parse_experiment(
    tables: Mapping[str, Any], overrides: Sequence[str] = (), origin: str = "the config"
) -> Experiment:
    """Check nested tables, after `table.key=value` overrides, and fill in the defaults.

    Args:
        tables: as `tomllib` reads them.
        overrides: as in `read_experiment`.
        origin: where they come from, for errors.
    """
    try:
        merged = _copy(tables)
    except RecursionError:
        raise ConfigError(f"{origin} cannot be used: {TOO_DEEP}") from None
    # Another method has other options: its name first, which drops those of the file's method.
    for override in sorted(overrides, key=lambda o: o.partition("=")[0].strip() != "method.name"):
        _apply(merged, override)
    try:
        return Experiment.model_validate(merged)
    except ValidationError as problem:
        raise ConfigError(f"{origin} cannot be used: {explain(problem, merged)}") from None


def _parse_toml(text: str, origin: object) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{origin} is not valid TOML: {TOO_DEEP}") from None
    except ValueError as problem:  # also numbers of more digits than Python reads
        raise ConfigError(f"{origin} is not valid TOML: {problem}") from problem


def _apply(tables: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path):
        raise ConfigError(f"expected an override like training.epochs=5, got {override!r}")
    try:
        value = _parse_toml(f"value = {text}", override)["value"]
    except ConfigError:
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
