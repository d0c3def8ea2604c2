"""Records as lines of JSON, on disk as soon as they exist."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sheafed.atomic_io import make_directory, naming_output, write_atomically
from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class MetricsLog(Callback):
    """A line of JSON per evaluation, on disk as soon as it exists."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_start(self, network: Network) -> None:
        """Write the records so far: lines after the checkpoint will be measured again."""
        write_records(self.path, network.history.records)

    def on_evaluation(self, network: Network, record: Record) -> bool:
        append_record(self.path, record)
        return False


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Replace what a metrics log holds."""
    make_directory(path.parent)
    write_atomically(path, b"".join(map(_line, records)))


def append_record(path: Path, record: Record) -> None:
    """Add a line to a metrics log, on disk when this returns; a full disk leaves no part of it."""
    line = _line(record)
    with naming_output(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
