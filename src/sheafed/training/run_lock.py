"""One writer at a time for a run directory."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sheafed.atomic_io import make_directory, naming_output
from sheafed.checkpointing.run_directory import LOCK
from sheafed.errors import NoLockWarning, RunInUseError
from sheafed.file_locks import LocksUnsupportedError, open_locked
from sheafed.training.process_group import ProcessGroup, SingleProcess

_descriptors: set[int] = set()
"""Of the locks that this process holds."""
_thread = threading.local()
"""Its `directories` are those that the current thread has locked."""


@contextmanager
def run_lock(directory: Path | None, group: ProcessGroup | None = None) -> Iterator[None]:
    """Make a run directory and keep other processes and threads from writing into it.

    The system releases the lock when this process ends, however it does; processes that it has
    forked do not keep it. Within the context, the same thread may lock the directory again.

    Args:
        directory: that of the run; nothing is locked if there is none.
        group: the processes that write together; rank 0 holds the lock for all of them.
    """
    if directory is None:
        yield
        return
    group = group or SingleProcess()
    make_directory(directory, private=True)
    with ExitStack() as held:
        free = group.rank != 0 or held.enter_context(_locked(directory.resolve()))
        if not all(group.gather(free)):
            raise RunInUseError(
                f"{directory} is in use: another process or thread writes into it; wait for it to "
                "end, or choose another directory"
            )
        yield


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Lock a directory, if it is not locked by others; yield whether it is now."""
    mine: set[Path] = _thread.__dict__.setdefault("directories", set())
    if directory in mine:
        yield True
        return
    try:
        with naming_output(directory / LOCK):
            descriptor = open_locked(directory / LOCK)
    except LocksUnsupportedError as problem:
        warnings.warn(
            f"{directory} cannot be locked ({problem}): nothing keeps a second process from "
            "writing into it; start no other one there",
            NoLockWarning,
            stacklevel=2,
        )
        yield True
        return
    if descriptor is None:
        yield False
        return
    mine.add(directory)
    _descriptors.add(descriptor)
    try:
        yield True
    finally:
        mine.discard(directory)
        if descriptor in _descriptors:  # not in a child process, which has closed its copy
            _descriptors.remove(descriptor)
            os.close(descriptor)


def _leave_locks_to_the_parent() -> None:
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()
    _thread.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_the_parent)
