"""The files that `sheafed new` writes."""

from importlib import resources
from pathlib import Path

from sheafed.atomic_io import write_atomically
from sheafed.errors import ConfigError


def write_starter(name: str) -> tuple[Path, Path]:
    """Write NAME.toml, a commented config, and NAME_method.py, a method to start from."""
    package = resources.files("sheafed.config")
    config, method = Path(f"{name}.toml"), Path(f"{name}_method.py")
    if not method.stem.isidentifier():  # Python could not import the method
        raise ConfigError(
            f"the last part of a name must be of letters, digits and _, not beginning with a "
            f"digit, as {method.name} is a Python module; got {name!r}"
        )
    for path in (config, method):
        if path.exists():
            raise ConfigError(f"{path} exists already; choose another name")
    toml = package.joinpath("toml", "starter.toml").read_text(encoding="utf-8")
    code = package.joinpath("starter_method.py").read_text(encoding="utf-8")
    write_atomically(config, toml.replace("THIS", name).encode())
    write_atomically(method, code.replace("THIS_MODULE", method.stem).encode())
    return config, method
