"""What an agent shows to prove its name, and whom it trusts to have checked those of others."""

from dataclasses import dataclass
from pathlib import Path

from sheafed.errors import InputError

AUTHORITY = "authority"
"""The name of the authority's files in a directory of `sheafed certs`."""


@dataclass(frozen=True)
class Credentials:
    """Paths of PEM files: the own certificate and key, and the certificate of the authority."""

    certificate: Path
    key: Path
    authority: Path

    def __post_init__(self) -> None:
        for what in ("certificate", "key", "authority"):
            path: Path = getattr(self, what)
            if not path.is_file():
                raise InputError(
                    f"the file of the {what}, {path}, is not there; `sheafed certs DIR NAME...` "
                    "makes one to try with"
                )


def credentials_in(directory: Path, name: str) -> Credentials:
    """Return what `sheafed certs` wrote for an agent."""
    return Credentials(
        directory / f"{name}.pem", directory / f"{name}.key", directory / f"{AUTHORITY}.pem"
    )
