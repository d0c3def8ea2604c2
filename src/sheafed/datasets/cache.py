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
CacheStatus = Literal["cached", "partly cached", "not fetched", "corrupted"]


@dataclass(frozen=True)
class RemoteDataset:
    """The files of a data set, and the sources to try in turn."""

    name: str
    files: tuple[DataFile, ...]
    sources: tuple[Source, ...]

    @property
    def directory(self) -> Path:
        """Where the cache keeps the files."""
        return data_directory() / self.name


def data_directory() -> Path:
    """Return the cache's directory: the environment variable SHEAFED_DATA, or ~/.cache/sheafed."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "sheafed"


def cache_status(dataset: RemoteDataset) -> CacheStatus:
    """Read and check what the cache holds of a data set."""
    absent = missing_files(dataset)
    present = [file for file in dataset.files if file not in absent]
    if not all(file.matches((dataset.directory / file.name).read_bytes()) for file in present):
        return "corrupted"
    if not absent:
        return "cached"
    return "partly cached" if present else "not fetched"


def missing_files(dataset: RemoteDataset) -> list[DataFile]:
    return [file for file in dataset.files if not (dataset.directory / file.name).exists()]


def read(dataset: RemoteDataset, file: DataFile) -> bytes:
    """Return the content of a cached file after checking it."""
    path = dataset.directory / file.name
    if not path.exists():
        raise DataUnavailableError(f"{path} is missing; run `sheafed data fetch {dataset.name}`")
    content = path.read_bytes()
    if not file.matches(content):
        raise CorruptedDataError(
            f"{path} is corrupted: its {len(content)} bytes do not have the SHA-256 "
            f"{file.sha256} of the {file.size} bytes expected; delete it, or replace it with "
            f"`sheafed data fetch {dataset.name} --again`"
        )
    return content


def fetch(
    dataset: RemoteDataset, *, again: bool = False, log: Callable[[str], None] = logger.info
) -> Path:
    """Complete a data set in the cache and return its directory.

    Present files are checked and kept; a corrupted one is an error. With `again` every file is
    fetched anew and replaces the old one once it has arrived and is checked.
    """
    directory = dataset.directory
    with _locked(directory, log):
        wanted = list(dataset.files) if again else missing_files(dataset)
        for file in dataset.files:
            if file not in wanted:
                read(dataset, file)
        failures = []
        for source in dataset.sources:
            if not wanted:
                break
            log(f"{dataset.name}: trying {source}")
            try:
                for file, content in source.fetch(tuple(wanted), directory):
                    if not file.matches(content):
                        raise SourceError(f"sent {file.name} with the wrong SHA-256")
                    write_atomically(directory / file.name, content)
                    wanted.remove(file)
            except SourceError as error:
                log(f"{dataset.name}: {source} failed: {error}")
                failures.append(f"  {source}: {error}")
        if wanted:
            raise DataUnavailableError(
                f"{dataset.name} could not be fetched; every source failed:\n"
                + "\n".join(failures)
                + f"\nRun `sheafed data fetch {dataset.name}` again with a network connection, "
                f"or put {', '.join(f.name for f in wanted)} (not compressed) into {directory}."
            )
        for partial in directory.glob(f"*{PARTIAL}"):
            partial.unlink()
    return directory


@contextmanager
def _locked(directory: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time write into a directory (on Windows there is no such lock)."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise DataError(
            f"the cache cannot be written ({error}); set {VARIABLE} to a directory that can"
        ) from error
    with lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log(f"another process is fetching into {directory}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
