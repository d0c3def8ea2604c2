"""The files with which an agent proves its name, and the authority that it trusts."""

from dataclasses import dataclass
from pathlib import Path

from sheafed.atomic_io import file_name
from sheafed.errors import InputError

AUTHORITY = "authority"
"""The name of the authority's files in a directory of `sheafed certs`."""


@dataclass(frozen=True)
class Credentials:
    """Paths of PEM files: the agent's certificate and key, and the certificate of the authority."""

    certificate: Path
    key: Path
    authority: Path

    def __post_init__(self) -> None:
        for what in ("certificate", "key", "authority"):
            path: Path = getattr(self, what)
            if not path.is_file():
                raise InputError(
                    f"no file {path} for the {what}; create one with `sheafed certs DIR NAME...`"
                )


def credentials_in(directory: Path, name: str) -> Credentials:
    """Return the credentials that `sheafed certs` wrote for an agent."""
    return Credentials(*certificate_and_key(directory, name), directory / f"{AUTHORITY}.pem")


def certificate_and_key(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of an agent's files in a directory of `sheafed certs`."""
    return directory / f"{file_name(name)}.pem", directory / f"{file_name(name)}.key"
