"""Notices that the certificate files of a running process were replaced, or will soon expire.

Zenoh reads the files of a listener once, when a session is opened, and has no other way to refuse
a name than the access control of a new session. So a change is taken up by a new session.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from sheafed.errors import InputError
from sheafed.transport.zenoh.credentials import Credentials

POLL_SECONDS = 1.0
WARNING_FRACTION = 0.1
"""A warning is logged when this part of a certificate's remaining life is left, or a week."""
WEEK = timedelta(days=7)

EXPIRED, NOT_USED = "expired", "new files are not used"
"""What a description of a certificate says of its difficulties."""

Stamps = list[tuple[int, int, int] | None]
"""Modification time, size and inode of each file; None for one that is missing."""

logger = logging.getLogger("sheafed.transport")


class CredentialsWatch:
    """Compares the files of a process with those that its session was opened with.

    Args:
        credentials: the files.
        name: of the agent or relay whose certificate it is.
    """

    def __init__(self, credentials: Credentials, name: str) -> None:
        self.credentials, self.name = credentials, name
        self.problem: str | None = None
        """Why files that were replaced are not used yet."""
        self._checked = float("-inf")
        self._stamps = self._read_stamps()
        self._seen = self._digest()
        self.taken_up()

    def taken_up(self) -> None:
        """Remember that the files that were last looked at are in use."""
        from sheafed.transport.zenoh.certificate_checks import expiry  # needs cryptography

        self._in_use: bytes | None = self._seen
        self.problem = None
        self.expires = expiry(self.credentials.certificate)
        left = max(timedelta(0), self.expires - _now())
        self._warn_from = self.expires - min(WEEK, WARNING_FRACTION * left)
        self._warned: str | None = None

    def not_in_use(self) -> None:
        """Remember that there is no session, so that any files that can be used are new."""
        self._in_use = None

    def replaced(self) -> bool:
        """Whether the files were replaced by others that can be used; looks once a second."""
        if time.monotonic() - self._checked < POLL_SECONDS:
            return False
        self._checked = time.monotonic()
        if (stamps := self._read_stamps()) != self._stamps:
            self._stamps, self._seen = stamps, self._digest()
        if self._seen == self._in_use:
            self._set_problem(None)
            self._warn_of_expiry()
            return False
        from sheafed.transport.zenoh.certificate_checks import check_replacement

        try:
            check_replacement(self.credentials, self.name)
        except InputError as problem:
            self._set_problem(str(problem))
            return False
        return True

    def describe(self) -> str:
        """Return the state of the certificate in a few words."""
        state = EXPIRED if _now() >= self.expires else "valid until"
        text = f"{state} {self.expires.isoformat(sep=' ', timespec='seconds')}"
        return text if self.problem is None else f"{text}; {NOT_USED}: {self.problem}"

    def _set_problem(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            logger.warning("%s goes on with its old certificate files: %s", self.name, problem)
        self.problem = problem

    def _warn_of_expiry(self) -> None:
        if _now() >= self._warn_from and self._warned != self.describe():
            self._warned = self.describe()
            logger.warning(
                "the certificate of %s: %s; replace %s and %s, no restart is needed",
                *(self.name, self._warned),
                *(self.credentials.certificate, self.credentials.key),
            )

    def _digest(self) -> bytes:
        return sha256(
            b"".join(sha256(_content(p)).digest() for p in self.credentials.files)
        ).digest()

    def _read_stamps(self) -> Stamps:
        stamps: Stamps = []
        for path in self.credentials.files:
            try:
                found = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _now() -> datetime:
    return datetime.now(UTC)
