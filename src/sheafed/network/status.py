"""A small file with the current state of an agent, for `sheafed network status`."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Literal

from sheafed.atomic_io import write_atomically
from sheafed.metrics.metric import ACCURACY
from sheafed.transport.zenoh.renewal import EXPIRED, NOT_USED

STATUS = "status.json"
PERIOD_SECONDS = 1.0
SILENT_SECONDS = 5.0

logger = logging.getLogger("sheafed.network")

State = Literal["waiting", "training", "finished", "stopped", "failed", "unreadable"]


@dataclass
class Status:
    """The current state of an agent."""

    agent: str
    state: State = "waiting"
    round: int = 0
    rounds: int = 0
    """The number of rounds of the whole training."""
    metric: str = ACCURACY.name
    private: float | None = None
    """The agent's metric on its own test data, at the last evaluation."""
    communication: float | None = None
    """The same metric on latents from neighbours that have it too."""
    bytes_sent: int = 0
    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    """Dropped messages, by reason."""
    refused: dict[str, str] = field(default_factory=dict)
    """Neighbours whose handshake failed, with the reason."""
    unknown_peers: dict[str, int] = field(default_factory=dict)
    """Links whose certificate is of the authority but names no neighbour, by common name."""
    failed_connections: dict[str, int] = field(default_factory=dict)
    """Connections to this agent that came to nothing, by address, of those with the most."""
    certificate: str | None = None
    """Until when it is valid, and why replaced files are not used, if so."""
    pid: int = field(default_factory=os.getpid)
    time: float = field(default_factory=time.time)


class StatusFile:
    """Writes a status every second, and on exit, from a thread of its own.

    A failure to write does not end the agent: it is logged, and the next write tries again.
    """

    def __init__(self, path: Path, status: Callable[[], Status]) -> None:
        self._path, self._status = path, status
        self._failing = False
        self._ended, self._writing = Event(), Lock()
        self._thread = Thread(target=self._work, name="status", daemon=True)

    def __enter__(self) -> StatusFile:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.write()

    def _work(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            self.write()

    def write(self) -> None:
        """Write the status of this moment."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        try:
            write_atomically(self._path, json.dumps(asdict(self._status())).encode())
        except OSError as problem:
            if not self._failing:
                logger.error("the status cannot be written for now: %s", problem)
            self._failing = True
        else:
            self._failing = False


def peer_directory(directory: Path) -> str | None:
    """Say in words that a directory is one of a network of peers, of all or of one; else None."""
    if (directory / STATUS).is_file():
        return f"{directory} is the directory of one agent of a network of peers"
    if any(directory.glob(f"*/{STATUS}")):
        return f"{directory} is the directory of a network of peers"
    return None


def read_statuses(directory: Path) -> dict[str, Status]:
    """Return the statuses in the subdirectories of a network's directory, by agent."""
    found = [_read(path) for path in sorted(directory.glob(f"*/{STATUS}"))]
    return {status.agent: status for status in found}


def _read(path: Path) -> Status:
    try:
        return Status(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):  # damaged: an agent that lives writes it anew
        return Status(agent=path.parent.name, state="unreadable")


def liveness(status: Status) -> str:
    """Return the state, or that the process is dead or has not written for some time."""
    if status.state in ("finished", "stopped", "failed", "unreadable"):
        return status.state
    if not _runs(status.pid):
        return "dead"
    age = time.time() - status.time
    return f"silent for {age:.0f} s" if age > SILENT_SECONDS else status.state


def difficulties(status: Status) -> list[str]:
    """Return what keeps an agent from others, or others from it, in a line each."""
    found = [f"does not train with {j}: {reason}" for j, reason in status.refused.items()]
    if status.failed_connections:
        total = sum(status.failed_connections.values())
        address, times = max(status.failed_connections.items(), key=lambda item: item[1])
        found.append(
            f"connections to it that came to nothing: {total}, of them {times} from {address} "
            "(strangers, certificates that one of the ends refuses, or agents that wait and tried "
            "why)"
        )
    if status.unknown_peers:
        found.append(f"links whose certificate names no neighbour: {_counts(status.unknown_peers)}")
    if status.rejected:
        found.append(f"messages that were dropped: {_counts(status.rejected)}")
    certificate = status.certificate or ""
    if certificate.startswith(EXPIRED) or NOT_USED in certificate:
        found.append(f"certificate {certificate}")
    return found


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(of.items()))


def _runs(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 is Ctrl-C there: it would end the agent; a dead one is silent
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
