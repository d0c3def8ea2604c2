"""The cache of downloaded files: every file is either absent or checked by its SHA-256."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sheafed.atomic_io import write_atomically
from sheafed.datasets.sources import PARTIAL, DataFile, Source
from sheafed.errors import CorruptedDataError, DataError, DataUnavailableError, SourceError
from sheafed.file_locks import try_lock

logger = logging.getLogger("sheafed.datasets")

VARIABLE = "SHEAFED_DATA"
POLL_SECONDS = 0.1
CacheStatus = Literal["cached", "partly cached", "not fetched", "corrupted"]


@dataclass(frozen=True)
class RemoteFiles:
    """The files of a data set or of an encoder, and the sources to try in turn."""

    name: str
    files: tuple[DataFile, ...]
    sources: tuple[Source, ...]
    kind: Literal["data", "encoders"] = "data"

    @property
    def directory(self) -> Path:
        """Where the cache keeps the files."""
        base = data_directory()
        return base / self.name if self.kind == "data" else base / self.kind / self.name

    @property
    def fetch_command(self) -> str:
        return f"sheafed {self.kind} fetch {self.name}"


def data_directory() -> Path:
    """Return the cache's directory: the environment variable SHEAFED_DATA, or ~/.cache/sheafed."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "sheafed"


def cache_status(remote: RemoteFiles) -> CacheStatus:
    """Read and check what the cache holds of them."""
    absent = missing_files(remote)
    present = [file for file in remote.files if file not in absent]
    if not all(file.matches((remote.directory / file.name).read_bytes()) for file in present):
        return "corrupted"
    if not absent:
        return "cached"
    return "partly cached" if present else "not fetched"


def missing_files(remote: RemoteFiles) -> list[DataFile]:
    return [file for file in remote.files if not (remote.directory / file.name).exists()]


def read(remote: RemoteFiles, file: DataFile) -> bytes:
    """Return the content of a cached file after checking it."""
    path = remote.directory / file.name
    if not path.exists():
        raise DataUnavailableError(f"{path} is missing; run `{remote.fetch_command}`")
    content = path.read_bytes()
    if not file.matches(content):
        raise CorruptedDataError(
            f"{path} is corrupted: its {len(content)} bytes do not have the SHA-256 "
            f"{file.sha256} of the {file.size} bytes expected; delete it, or replace it with "
            f"`{remote.fetch_command} --again`"
        )
    return content


def fetch(
    remote: RemoteFiles, *, again: bool = False, log: Callable[[str], None] = logger.info
) -> Path:
    """Complete the files in the cache and return their directory.

    Present files are checked and kept; a corrupted one is an error. With `again` every file is
    fetched anew and replaces the old one once it has arrived and is checked.
    """
    directory = remote.directory
    with locked(directory, log):
        wanted = list(remote.files) if again else missing_files(remote)
        for file in remote.files:
            if file not in wanted:
                read(remote, file)
        failures = []
        for source in remote.sources:
            if not wanted:
                break
            log(f"{remote.name}: trying {source}")
            try:
                for file, content in source.fetch(tuple(wanted), directory):
                    if not file.matches(content):
                        raise SourceError(f"sent {file.name} with the wrong SHA-256")
                    write_atomically(directory / file.name, content)
                    wanted.remove(file)
            except SourceError as error:
                log(f"{remote.name}: {source} failed: {error}")
                failures.append(f"  {source}: {error}")
        if wanted:
            raise DataUnavailableError(
                f"{remote.name} could not be fetched; every source failed:\n"
                + "\n".join(failures)
                + f"\nRun `{remote.fetch_command}` again with a network connection, "
                f"or put {', '.join(f.name for f in wanted)} (not compressed) into {directory}."
            )
        for partial in directory.glob(f"*{PARTIAL}"):
            partial.unlink()
    return directory


@contextmanager
def locked(directory: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time write into a directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("ab")
    except OSError as error:
        raise DataError(
            f"the cache cannot be written ({error}); set {VARIABLE} to a directory that can"
        ) from error
    with lock:
        if not try_lock(lock.fileno()):
            log(f"another process is writing into {directory}; waiting for it")
            while not try_lock(lock.fileno()):
                time.sleep(POLL_SECONDS)
        yield
