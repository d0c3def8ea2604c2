"""One writer at a time for a run directory, and none that is dead."""

import errno
import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sheafed.errors import NoLockWarning, RunInUseError
from sheafed.training import train
from sheafed.training.process_group import SingleProcess
from sheafed.training.run_lock import run_lock
from tests.helpers.federations import METHODS, pilots, simple_agent, start
from tests.helpers.lock_holder import used_by_another


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    network = start("strict", out, epochs=1)
    before = contents(out)
    with used_by_another(out):
        writers = (
            lambda: start("strict", out, epochs=2, resume=True),
            lambda: start("strict", out, epochs=1),
            lambda: network.train(epochs=1),
            lambda: network.join(simple_agent("new"), ["ada"]),
            lambda: network.leave("cyd"),
            lambda: network.save(out),
        )
        for write in writers:
            with pytest.raises(RunInUseError, match="run is in use: another process"):
                write()
        assert contents(out) == before
        assert start("strict", tmp_path / "other", epochs=1).history.rounds == 5
    assert list(network.nodes) == ["ada", "bob", "cyd"]
    assert start("strict", out, epochs=2, resume=True).history.rounds == 10


def test_a_run_without_a_directory_locks_nothing(tmp_path: Path) -> None:
    team = [simple_agent("a"), simple_agent("b")]
    train(team, [("a", "b")], METHODS["alone"](), pilots(), epochs=1)
    with run_lock(None):
        pass
    assert not list(tmp_path.iterdir())


def test_the_thread_that_has_the_lock_may_take_it_again(tmp_path: Path) -> None:
    again = tmp_path / "link"
    again.symlink_to(tmp_path)
    with run_lock(tmp_path), run_lock(again):
        pass
    with used_by_another(tmp_path), pytest.raises(RunInUseError), run_lock(again):
        pass


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "with a child of its own"])
def test_a_killed_process_gives_its_lock_back_at_once(tmp_path: Path, forked: bool) -> None:
    reading, writing = os.pipe()
    holder = os.fork()
    if holder == 0:
        with run_lock(tmp_path):
            worker = os.fork() if forked else 0
            if forked and worker == 0:  # as those that read data ahead
                signal.pause()
            os.write(writing, worker.to_bytes(8, "big"))
            signal.pause()
    worker = int.from_bytes(os.read(reading, 8), "big")
    try:
        with pytest.raises(RunInUseError), run_lock(tmp_path):
            pass
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        with run_lock(tmp_path):
            pass
    finally:
        if worker:
            os.kill(worker, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


class Rank(SingleProcess):
    """One of two processes; `free` is what both found."""

    def __init__(self, rank: int, free: list[bool]) -> None:
        self.rank, self.free = rank, free

    def gather(self, value: Any) -> list[Any]:
        assert value == self.free[self.rank]
        return self.free


def test_rank_0_locks_for_all(tmp_path: Path) -> None:
    with run_lock(tmp_path, Rank(1, [True, True])), used_by_another(tmp_path):
        for rank in (0, 1):
            refused = run_lock(tmp_path, Rank(rank, [False, True]))
            with pytest.raises(RunInUseError), refused:
                pass


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(NoLockWarning, match=r"cannot be locked .No locks available"):
        start("alone", tmp_path, epochs=1)
