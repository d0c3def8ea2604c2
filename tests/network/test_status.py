import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from threading import Semaphore

import pytest

from sheafed.network.status import (
    STATUS,
    Status,
    StatusFile,
    difficulties,
    liveness,
    read_statuses,
)


def test_a_status_is_written_at_once_and_at_the_end(tmp_path: Path) -> None:
    now = Status("ada", "training", round=3, rounds=9)
    path = tmp_path / "ada" / STATUS
    path.parent.mkdir()
    with StatusFile(path, lambda: now):
        assert read_statuses(tmp_path) == {"ada": now}
        now = replace(now, state="finished", round=9)
    assert read_statuses(tmp_path) == {"ada": now}
    assert json.loads(path.read_text()) == asdict(now)


def test_a_full_disk_does_not_end_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried, full = Semaphore(0), True

    def write(path: Path, content: bytes) -> None:
        tried.release()
        if full:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("sheafed.network.status.write_atomically", write)
    monkeypatch.setattr("sheafed.network.status.PERIOD_SECONDS", 0.001)
    path = tmp_path / "ada" / STATUS
    path.parent.mkdir()
    with StatusFile(path, lambda: Status("ada")):
        for _ in range(3):  # here, and twice by the thread
            assert tried.acquire(timeout=20)
    assert [text for text in caplog.messages if "No space left" in text] == [
        "the status cannot be written for now: [Errno 28] No space left on device"
    ]
    with StatusFile(path, lambda: Status("ada")):
        full = False
    assert list(read_statuses(tmp_path)) == ["ada"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"agent": ', b'{"colour": 1}', b"[" * 10**5])
def test_a_damaged_status_is_shown_as_such(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bo").mkdir()
    (tmp_path / "bo" / STATUS).write_bytes(content)
    assert liveness(read_statuses(tmp_path)["bo"]) == "unreadable"


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_an_ended_agent_keeps_its_state(state: str) -> None:
    assert liveness(Status("ada", state, pid=-1, time=0)) == state


def test_running_silent_and_dead_agents() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    status = Status("ada", "training", pid=os.getpid())
    assert liveness(status) == "training"
    assert liveness(replace(status, time=time.time() - 60)) == "silent for 60 s"
    assert liveness(replace(status, pid=ended.pid)) == "dead"


def test_what_keeps_an_agent_waiting_is_said() -> None:
    assert difficulties(Status("ada", certificate="valid until 2030-01-01")) == []
    expired = "expired 2020-01-01"
    unused = "valid until 2030-01-01; new files are not used: the key does not fit"
    assert difficulties(Status("ada", certificate=expired)) == [f"certificate {expired}"]
    found = difficulties(
        Status(
            "ada",
            refused={"bo": "do not agree on the pilot set"},
            failed_connections={"10.0.0.1": 2, "10.0.0.2": 40},
            unknown_peers={"zed": 3},
            rejected={"late": 1, "duplicate": 2},
            certificate=unused,
        )
    )
    assert [line.partition(" (")[0] for line in found] == [
        "does not train with bo: do not agree on the pilot set",
        "connections to it that came to nothing: 42, of them 40 from 10.0.0.2",
        "links whose certificate names no neighbour: zed 3",
        "messages that were dropped: duplicate 2, late 1",
        f"certificate {unused}",
    ]
