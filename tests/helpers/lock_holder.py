"""Hold the lock of a run directory as another writer does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from sheafed.training.run_lock import run_lock


@contextmanager
def used_by_another(directory: Path) -> Iterator[None]:
    """Lock a directory from another thread, while the context is open."""
    held, ended = Event(), Event()

    def hold() -> None:
        with run_lock(directory):
            held.set()
            ended.wait(60)

    holder = Thread(target=hold)
    holder.start()
    assert held.wait(60)
    try:
        yield
    finally:
        ended.set()
        holder.join()
