"""Writing files that a crash cannot damage, under names that every system accepts."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sheafed.errors import OutputError

UNFINISHED = ".unfinished"
PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
"""For this user alone; on Windows, those of the directory above hold."""
RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9]) *(\.|$)", re.IGNORECASE)
"""Names of devices, which Windows does not take for files, with any ending."""
UNSAFE = re.compile(r'[%<>:"/\\|?*\x00-\x1f]|[. ]$')


def file_name(name: str) -> str:
    """Return a file name for a name, e.g. of an agent; different names give different ones.

    >>> file_name("paris"), file_name("a/b: c?"), file_name("nul"), file_name("..")
    ('paris', 'a%2Fb%3A c%3F', '%6Eul', '.%2E')
    """
    encoded = UNSAFE.sub(lambda found: _percent(found[0]), name)
    return _percent(name[0]) + encoded[1:] if RESERVED.match(encoded) else encoded


def check_output(directory: Path) -> None:
    """Raise if a directory cannot be written or made; nothing is made yet."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise _output_error(directory, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _output_error(directory, f"no permission to write into {there}")


def make_directory(directory: Path, *, private: bool = False) -> None:
    """Make a directory that is to be written, with its parents, unless it is there.

    A private one, but not its parents, is closed to other users.
    """
    check_output(directory)
    with naming_output(directory):
        directory.mkdir(PRIVATE_DIRECTORY if private else 0o777, parents=True, exist_ok=True)


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replace the content of `path` atomically and durably: a crash leaves the old or the new one.

    The content is first written next to `path` under one fixed name, so that killed writers leave
    at most one such file, which the next writer overwrites. A path has one writer at a time. No
    other user can read a private file, at any moment.
    """
    unfinished = _unfinished(path)
    mode = PRIVATE_FILE if private else 0o666
    with naming_output(path):
        _check_file(path)
        unfinished.unlink(missing_ok=True)  # left by a killed writer, perhaps readable
        try:
            with open(unfinished, "xb", opener=lambda name, how: os.open(name, how, mode)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)  # on a full disk it would take the space of the next
            raise
        _sync_directory(path.parent)


def write_privately(path: Path, content: bytes) -> None:
    """Write a new private file; an existing one is not replaced."""
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    write_atomically(path, content, private=True)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a large file to write part by part; at the end it takes the place of `path`.

    If the writer fails, the old content stays.
    """
    unfinished = _unfinished(path)
    with naming_output(path):
        _check_file(path)
        try:
            with open(unfinished, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)


@contextmanager
def naming_output(path: Path) -> Iterator[None]:
    """Say which file or directory could not be written, and why, in place of the system's error."""
    try:
        yield
    except OutputError:
        raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        error = OutputError(f"cannot write {path}: {reason}; make room, or choose another place")
        error.strerror = reason  # for those that say it in their own words
        raise error from problem


def _output_error(directory: Path, reason: str) -> OutputError:
    return OutputError(f"cannot write into the directory {directory}: {reason}; choose another one")


def _percent(character: str) -> str:
    return f"%{ord(character):02X}"


def _check_file(path: Path) -> None:
    """Raise if there is something else than a file: renaming would take the place of a device."""
    if path.exists() and not path.is_file():
        raise OSError("it is a directory" if path.is_dir() else "it is not a file")


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


def _sync_directory(directory: Path) -> None:
    """Make the renaming durable, where the system can open a directory (not Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
