"""Files that a crash cannot damage."""

import os
from pathlib import Path

UNFINISHED = ".unfinished"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of `path` durably: a crash leaves the old or the new content.

    The content is first written beside `path` under one fixed name, so that killed writers leave
    at most one such file, which the next writer overwrites. A path has one writer at a time.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)  # on a full disk it would take the next one's space
        raise
    _sync_directory(path.parent)


def write_privately(path: Path, content: bytes) -> None:
    """Write a new file that is never readable by other users; a crash leaves it whole or absent.

    Like `write_atomically`, it writes beside `path` first. An existing file is not replaced.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.unlink(missing_ok=True)  # of a killed writer
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the renaming itself durable, where the system can open a directory (not Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
