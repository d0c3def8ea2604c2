"""The cache of downloaded data: every file is either absent or checked by its SHA-256."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sheafed.atomic_io import write_atomically
from sheafed.datasets.sources import PARTIAL, DataFile, Source
from sheafed.errors import CorruptedDataError, DataError, DataUnavailableError, SourceError

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("sheafed.datasets")

VARIABLE = "SHEAFED_DATA"
State = Literal["cached", "partly cached", "not fetched", "corrupted"]


@dataclass(frozen=True)
class RemoteDataset:
    """The files of a data set, and the sources to try in turn."""

    name: str
    files: tuple[DataFile, ...]
    sources: tuple[Source, ...]


def data_directory() -> Path:
    """Return the cache: what the environment variable SHEAFED_DATA says, or ~/.cache/sheafed."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "sheafed"


def state(dataset: RemoteDataset) -> State:
    """Tell what the cache holds of a collection, by reading and checking it."""
    home = data_directory() / dataset.name
    absent = missing(dataset)
    there = [file for file in dataset.files if file not in absent]
    if not all(file.is_in((home / file.name).read_bytes()) for file in there):
        return "corrupted"
    if not absent:
        return "cached"
    return "partly cached" if there else "not fetched"


def missing(dataset: RemoteDataset) -> list[DataFile]:
    """Return the files that the cache does not hold."""
    home = data_directory() / dataset.name
    return [file for file in dataset.files if not (home / file.name).exists()]


def read(dataset: RemoteDataset, file: DataFile) -> bytes:
    """Return the content of a cached file once it is checked."""
    path = data_directory() / dataset.name / file.name
    if not path.exists():
        raise DataUnavailableError(f"{path} is missing; run `sheafed data fetch {dataset.name}`")
    content = path.read_bytes()
    if not file.is_in(content):
        raise CorruptedDataError(
            f"{path} is corrupted: its {len(content)} bytes do not have the SHA-256 "
            f"{file.sha256} of the {file.size} bytes expected; delete it, or replace it with "
            f"`sheafed data fetch {dataset.name} --again`"
        )
    return content


def fetch(
    dataset: RemoteDataset, *, again: bool = False, tell: Callable[[str], None] = logger.info
) -> Path:
    """Complete a collection in the cache and return its directory.

    Files that are there are checked and kept; a corrupted one is an error. With `again` every
    file is fetched anew and replaces the old one once it has arrived and is checked.
    """
    home = data_directory() / dataset.name
    with _locked(home, tell):
        wanted = list(dataset.files) if again else missing(dataset)
        for file in dataset.files:
            if file not in wanted:
                read(dataset, file)
        failures = []
        for source in dataset.sources:
            if not wanted:
                break
            tell(f"{dataset.name}: trying {source}")
            try:
                for file, content in source.obtain(tuple(wanted), home):
                    if not file.is_in(content):
                        raise SourceError(f"sent {file.name} with the wrong SHA-256")
                    write_atomically(home / file.name, content)
                    wanted.remove(file)
            except SourceError as error:
                tell(f"{dataset.name}: {source} failed: {error}")
                failures.append(f"  {source}: {error}")
        if wanted:
            raise DataUnavailableError(
                f"{dataset.name} could not be fetched; every source failed:\n"
                + "\n".join(failures)
                + f"\nRun `sheafed data fetch {dataset.name}` again with a network connection, "
                f"or put {', '.join(f.name for f in wanted)} (not compressed) into {home}."
            )
        for partial in home.glob(f"*{PARTIAL}"):
            partial.unlink()
    return home


@contextmanager
def _locked(home: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time write into a directory (on Windows there is no such lock)."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / ".lock").open("w")
    except OSError as error:
        raise DataError(
            f"the cache cannot be written ({error}); set {VARIABLE} to a directory that can"
        ) from error
    with lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(f"another process is fetching into {home}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
