"""Keep freed memory: a training frees and takes the same amounts again in every round.

By default glibc hands large blocks back to the system, which must zero them when they are taken
again. With a thousand agents, whose latents all wait for their neighbours at once, that costs a
fifth of a round.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask the allocator to keep what is freed; return whether it is one that can."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER)) and bool(mallopt(_MMAP_THRESHOLD, 1 << 30))
