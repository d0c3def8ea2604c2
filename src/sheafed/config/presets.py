"""Configs that come along."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from sheafed.config.experiment import Experiment
from sheafed.config.reading import parse, read
from sheafed.errors import ConfigError

PRESETS = ("digits", "pair", "fifteen")


def preset(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return a preset by name, with `table.key=value` overrides."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset named {name!r}; choose from {', '.join(PRESETS)}")
    file = resources.files("sheafed.config").joinpath("toml", f"{name}.toml")
    return parse(tomllib.loads(file.read_text()), overrides, origin=f"preset {name}")


def read_experiment(
    config: str, overrides: Sequence[str] = (), seed: int | None = None
) -> Experiment:
    """Read a file or a preset, with overrides, and another seed if one is given."""
    if seed is not None:
        overrides = [*overrides, f"seed={seed}"]
    if config in PRESETS:
        return preset(config, overrides)
    if not Path(config).exists():
        raise ConfigError(
            f"there is neither a file nor a preset named {config!r}; presets are "
            f"{', '.join(PRESETS)}, and `sheafed new NAME` writes a file to start from"
        )
    return read(Path(config), overrides)
