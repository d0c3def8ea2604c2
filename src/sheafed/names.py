"""Names of agents, relays and networks: one rule for runs, files, certificates and keys.

Names stand in the common names of certificates, in the keys of messages, in file names, in logs
and in reports, so they are checked in one place for all of them.
"""

from collections.abc import Iterable
from reprlib import repr as short

from sheafed.atomic_io import RESERVED
from sheafed.errors import InputError

MAX_BYTES = 64
"""In UTF-8. X.509 allows 64 characters of a common name, and file names have at most 255 bytes."""
SPECIAL = frozenset("*$?#/\\")
"""Wildcards and separators of keys and of paths."""
TAKEN = frozenset({"authority", "certificates", ".", ".."})
"""Names of files and directories that stand beside those of agents."""


def check_name(name: object, what: str = "agent") -> str:
    """Return a name if it is valid in files, certificates and keys alike.

    Args:
        name: the name.
        what: the kind of thing that it names, for the message of the error.

    >>> check_name("paris"), check_name("Zoë 2")
    ('paris', 'Zoë 2')
    >>> check_name("*")
    Traceback (most recent call last):
    sheafed.errors.InputError: the name of an agent must not contain '*', got '*'; rename it
    """
    article = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
    if problem := _problem(name):
        raise InputError(f"the name of {article} must {problem}, got {short(name)}; rename it")
    return str(name)


def check_names(names: Iterable[object], what: str = "agent") -> None:
    """Raise unless all names are valid."""
    for name in names:
        check_name(name, what)


def _problem(name: object) -> str | None:
    if not isinstance(name, str) or not name:
        return "be a non-empty string"
    if not name.isprintable():
        return "be printable, without control characters and line breaks"
    if found := sorted(SPECIAL & set(name)):
        return f"not contain {', '.join(map(repr, found))}"
    if name != name.strip():
        return "not begin or end with a space"
    if len(name.encode()) > MAX_BYTES:
        return f"have at most {MAX_BYTES} bytes in UTF-8"
    if name.lower() in TAKEN or RESERVED.match(name):
        return "not be a reserved file name"
    return None
