"""The files with which an agent proves its name, and the authority that it trusts."""

from dataclasses import dataclass
from pathlib import Path

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
    return Credentials(
        directory / f"{name}.pem", directory / f"{name}.key", directory / f"{AUTHORITY}.pem"
    )
