"""Locks between processes, which the system releases when the process that holds one ends."""

import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

INHERITED = sys.platform != "win32"
"""Whether child processes that inherit the descriptor hold the lock too."""


class LocksUnsupportedError(Exception):
    """The file system of a file knows no locks."""


def open_locked(path: Path) -> int | None:
    """Open a file, made if there is none, and lock it; None if another process holds its lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if try_lock(descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process holds its lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as flock and Windows call it
        return False
    except OSError as problem:
        if problem.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise LocksUnsupportedError(problem.strerror) from problem
        raise
    return True
