"""The files with which an agent proves its name, and by which it knows whom to trust."""

from dataclasses import dataclass
from pathlib import Path

from sheafed.atomic_io import file_name
from sheafed.errors import InputError
from sheafed.names import check_names

AUTHORITY = "authority"
"""The name of the authority's files in a directory of `sheafed certs`."""
REVOKED = "revoked"
"""The name of the list of revoked names in such a directory."""


@dataclass(frozen=True)
class Credentials:
    """Paths of files, which may be replaced while an agent runs.

    Args:
        certificate: of the agent, in PEM format, with any intermediate certificates after it.
        key: of the certificate, in PEM format.
        authority: certificates of the trusted authorities, in PEM format.
        revoked: a list of names, one on each line, whose certificates are no longer accepted;
            lines that begin with # are comments.
    """

    certificate: Path
    key: Path
    authority: Path
    revoked: Path | None = None

    def __post_init__(self) -> None:
        for what in ("certificate", "key", "authority"):
            path: Path = getattr(self, what)
            if not path.is_file():
                raise InputError(
                    f"no file {path} for the {what}; create one with `sheafed certs DIR NAME...`"
                )
        self.revoked_names()

    @property
    def files(self) -> tuple[Path, ...]:
        own = (self.certificate, self.key, self.authority)
        return own if self.revoked is None else (*own, self.revoked)

    def revoked_names(self) -> frozenset[str]:
        """Read the list of revoked names."""
        if self.revoked is None:
            return frozenset()
        try:
            lines = self.revoked.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(
                f"cannot read {self.revoked}, the list of revoked names: {problem}; an empty file "
                "revokes none"
            ) from problem
        names = frozenset(line for line in lines if line and not line.startswith("#"))
        check_names(names)
        return names


def credentials_in(directory: Path, name: str) -> Credentials:
    """Return the credentials that `sheafed certs` wrote for an agent."""
    revoked = directory / REVOKED
    return Credentials(
        *certificate_and_key(directory, name),
        directory / f"{AUTHORITY}.pem",
        revoked if revoked.exists() else None,
    )


def certificate_and_key(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of an agent's files in a directory of `sheafed certs`."""
    return directory / f"{file_name(name)}.pem", directory / f"{file_name(name)}.key"
