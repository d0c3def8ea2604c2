"""What agents use of memory, descriptors and disk, from `/proc` and their directories."""

import csv
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from chaos.machines import FILLER
from sheafed.checkpointing.run_directory import CHECKPOINT, METRICS
from sheafed.network.launcher import LOG
from sheafed.network.status import Status


@dataclass(frozen=True)
class Sample:
    """One agent at one moment."""

    seconds: float
    """Since the begin of the soak."""
    agent: str
    life: int
    """How often the agent has been started before."""
    age: float
    """Seconds since it was started for the last time."""
    rss: int
    """Bytes of memory of the agent's process."""
    descriptors: int
    guard_rss: int
    """Of the processes that the agent has started."""
    guard_descriptors: int
    log_bytes: int
    metrics_bytes: int
    checkpoint_bytes: int
    directory_bytes: int
    """Of all files of the agent, without what fills its disk."""
    state: str
    round: int
    bytes_sent: int
    private: float | None
    communication: float | None


def take(
    seconds: float, name: str, life: int, age: float, pid: int, directory: Path, status: Status
) -> Sample | None:
    """Measure an agent; None if its process is gone."""
    helpers = children(pid)
    try:
        rss, descriptors = _rss(pid), _descriptors(pid)
        guard_rss, guard_descriptors = sum(map(_rss, helpers)), sum(map(_descriptors, helpers))
    except (OSError, ValueError):
        return None
    sizes = file_sizes(directory)
    return Sample(
        *(round(seconds, 1), name, life, round(age, 1)),
        *(rss, descriptors, guard_rss, guard_descriptors),
        log_bytes=sum(size for path, size in sizes.items() if path.startswith(LOG)),
        metrics_bytes=sizes.get(METRICS, 0),
        checkpoint_bytes=sizes.get(CHECKPOINT, 0),
        directory_bytes=sum(sizes.values()),
        state=status.state,
        round=status.round,
        bytes_sent=status.bytes_sent,
        private=status.private,
        communication=status.communication,
    )


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for each in processes():
        with suppress(OSError):
            stat = Path(f"/proc/{each}/stat").read_text(encoding="utf-8")
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(each)
    return found


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def file_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of each file in a directory."""
    sizes = {}
    for path in directory.iterdir():
        if path.name != FILLER:
            with suppress(FileNotFoundError):
                sizes[path.name] = path.stat().st_size
    return sizes


def append(path: Path, samples: Sequence[Sample]) -> None:
    """Add samples to a CSV file."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Sample)])
        if new:
            writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)


def read(path: Path) -> list[Sample]:
    """Return the samples of a CSV file."""
    kinds = {field.name: field.type for field in fields(Sample)}

    def value(key: str, text: str) -> Any:
        if kinds[key] in (int, float, str):
            return kinds[key](text)
        return float(text) if text else None

    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Sample(**{key: value(key, text) for key, text in row.items()}) for row in rows]


def _rss(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
