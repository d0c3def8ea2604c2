"""Configs that come along."""

import tomllib
from collections.abc import Sequence
from importlib import resources

from sheafed.errors import ConfigError
from sheafed.experiments.config import Experiment, parse

PRESETS = ("digits", "pair", "network")


def preset(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return a preset by name, with `table.key=value` overrides."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset named {name!r}; choose from {', '.join(PRESETS)}")
    file = resources.files("sheafed.experiments").joinpath("toml", f"{name}.toml")
    return parse(tomllib.loads(file.read_text()), overrides, origin=f"preset {name}")
