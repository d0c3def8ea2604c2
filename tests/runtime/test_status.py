import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sheafed.runtime.status import STATUS, Status, StatusFile, liveness, read_statuses


def test_a_status_is_written_at_once_and_at_the_end(tmp_path: Path) -> None:
    now = Status("ada", "training", round=3, rounds=9)
    path = tmp_path / "ada" / STATUS
    path.parent.mkdir()
    with StatusFile(path, lambda: now):
        assert read_statuses(tmp_path) == {"ada": now}
        now = replace(now, state="finished", round=9)
    assert read_statuses(tmp_path) == {"ada": now}
    assert json.loads(path.read_text()) == asdict(now)


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_who_has_ended_says_so(state: str) -> None:
    assert liveness(Status("ada", state, pid=-1, time=0)) == state


def test_who_runs_who_is_silent_and_who_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    status = Status("ada", "training", pid=os.getpid())
    assert liveness(status) == "training"
    assert liveness(replace(status, time=time.time() - 60)) == "silent for 60 s"
    assert liveness(replace(status, pid=ended.pid)) == "dead"
