"""Locks between processes, which the system releases when the process that holds one ends."""

import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

INHERITED = sys.platform != "win32"
"""Whether child processes that inherit the descriptor hold the lock too."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process holds its lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as flock and Windows call it
        return False
    return True
