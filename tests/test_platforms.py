"""`sheafed` where Unix is missing. It was never run on Windows; this hides what Windows lacks."""

import json

import pytest

from sheafed.file_locks import try_lock
from tests.helpers import warm_processes, without_unix

CONFIG = """
[data]
name = "digits"
train_fraction = 0.2
[model]
members = ["bo", "dee"]
[graph]
kind = "line"
[training]
epochs = 1
batch_size = 32
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    out = tmp_path_factory.mktemp("without unix")
    (out / "two.toml").write_text(CONFIG)
    return out, warm_processes.call(without_unix.use, out, str(out / "two.toml"))


def test_every_module_can_be_imported_without_unix(used):
    assert used[1]["modules"] > 200


def test_encoders_are_aligned_and_agents_trained_without_unix(used):
    out, found = used
    assert found["sent"] == (60, 5)
    assert 0 <= found["accuracy"] <= 1
    assert json.loads((out / "trained" / "summary.json").read_text())["peak_memory_bytes"] is None


def test_commands_run_without_unix(used):
    out, found = used
    assert "wrote" in found["run"]
    assert "wrote" in found["report"]
    assert (out / "report.html").stat().st_size > 10**5


def test_a_second_sweep_is_kept_out_by_the_locks_of_windows(used):
    assert "is in use by another command" in used[1]["locks"][0]


def test_an_agent_is_not_told_alive_from_dead_by_a_signal_that_windows_takes_for_ctrl_c(used):
    assert used[1]["liveness"].startswith("silent for")


def test_a_limit_of_memory_is_refused_where_there_is_none(used):
    assert "on Linux only" in used[1]["memory limit"]


def test_the_lock_of_a_file_is_that_of_one_process(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as one, path.open("ab") as other:
        assert try_lock(one.fileno())
        assert not try_lock(other.fileno())
    with path.open("ab") as one:  # closing a file gives its lock back
        assert try_lock(one.fileno())
