"""Trials in processes of their own: their files, their lock, and how they are stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sheafed.checkpointing.run_directory import CHECKPOINT, CONFIG, LAST, METRICS
from sheafed.errors import ConfigError, SweepError
from sheafed.sweep.processes import CAN_FORK, ForkedProcesses, NewProcesses
from sheafed.sweep.results import is_finished
from sheafed.sweep.runner import FAILURE, Runner, read_failure
from sheafed.sweep.trials import Trial

forked = pytest.mark.skipif(not CAN_FORK, reason="commands are forked on Linux only")


def test_a_failure_is_kept_until_the_trial_succeeds(tmp_path, three, capsys):
    good, bad = Trial((), (), 0), Trial(("data.name=cifar",), (), 0)
    runner = Runner(three, ["training.oracle=false"], tmp_path / "s", 1)
    (runner.out / good.directory).mkdir(parents=True)
    (runner.out / good.directory / FAILURE).write_text("an earlier one")
    with runner:
        runner.run([good, bad, good])
    printed = capsys.readouterr().out
    assert "1/2" in printed
    assert "2/2" in printed
    assert is_finished(good, runner.out)
    assert read_failure(good, runner.out) is None
    assert "unknown data set 'cifar'" in read_failure(bad, runner.out)
    summary = json.loads((runner.out / good.directory / "summary.json").read_text())
    assert {edge["oracle_accuracy"] for edge in summary["edges"]} == {None}


def test_a_runner_is_entered_again_with_other_trials(tmp_path, three):
    """As the grid does, cell by cell."""
    first, second = Trial((), (), 0), Trial((), (), 1)
    runner = Runner(three, ["training.oracle=false"], tmp_path, 1)
    for trial in (first, second):
        with runner:
            runner.run([trial])
    assert is_finished(first, tmp_path)
    assert is_finished(second, tmp_path)


def test_runs_of_another_config_are_not_mixed_in(tmp_path, three):
    trial, runner = Trial((), (), 0), Runner(three, [], tmp_path, 1)
    runner.check([trial])
    directory = tmp_path / trial.directory
    directory.mkdir(parents=True)
    (directory / CONFIG).write_text(runner.experiment(trial.overrides).model_dump_json())
    runner.check([trial])
    with pytest.raises(ConfigError, match="seed-0 was run with another config"):
        Runner(three, ["training.epochs=3"], tmp_path, 1).check([trial])
    (directory / CONFIG).write_text('{"a key of another version": 1}')
    with pytest.raises(ConfigError, match=r"seed-0/config\.json cannot be used"):
        runner.check([trial])


def test_one_command_at_a_time_also_after_the_first_was_killed(tmp_path, three):
    with Runner(three, [], tmp_path, 1) as first:
        with pytest.raises(SweepError, match="in use by another command"):
            Runner(three, [], tmp_path, 1).__enter__()
        heir = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(first._lock,)
        )
    # The first has gone, what it started has not.
    with pytest.raises(SweepError, match="left behind"):
        Runner(three, [], tmp_path, 1).__enter__()
    heir.communicate(b"\n")
    with Runner(three, [], tmp_path, 1):
        pass


def test_an_interruption_stops_the_processes_and_is_no_failure(tmp_path, three):
    endless = Trial(("training.epochs=100000",), (), 0)
    with Runner(three, [], tmp_path / "s", 2) as runner:
        checkpoint = runner.out / endless.directory / CHECKPOINT

        def work(item):
            if item is endless:
                return runner.ensure(endless)
            wait_until(checkpoint.exists)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runner.map(work, [None, endless])
    assert not is_finished(endless, runner.out)
    assert read_failure(endless, runner.out) is None


def test_a_bound_on_memory(tmp_path, three):
    trial = Trial((), (), 0)
    with Runner(three, [], tmp_path / "s", 1, memory=200 * 2**20) as runner:
        runner.run([trial])
    assert not is_finished(trial, runner.out)
    assert read_failure(trial, runner.out)


@forked
@pytest.mark.parametrize(
    ("override", "expected"),
    [("seed=1", True), ("training.device=cuda", False), ("method.nothing=1", False)],
)
def test_only_trials_on_the_cpu_are_forked(tmp_path, three, override, expected):
    """CUDA cannot be used in a fork of a process that has looked for it."""
    runner = Runner(three, [], tmp_path, 1)
    assert runner._can_fork(Trial((override,), (), 0)) is expected
    assert not Runner(three, [], tmp_path, 1, memory=2**30)._can_fork(Trial((), (), 0))


@pytest.fixture(scope="module")
def processes():
    forked = ForkedProcesses([])
    yield forked
    forked.close()


@forked
def test_a_forked_command_gives_the_bytes_of_a_new_process(tmp_path, three, processes):
    new = NewProcesses([])
    for kind in (processes, new):
        for seed in (7, 0) if kind is processes else (0,):  # what ran before leaves no trace
            out = tmp_path / f"{type(kind).__name__}-{seed}"
            kind.start(["run", three, "--out", str(out), "--set", f"seed={seed}"])
            assert kind.wait() == (0, "")
    for name in (METRICS, LAST):
        forked, expected = (tmp_path / f"{type(k).__name__}-0" / name for k in (processes, new))
        assert forked.read_bytes() == expected.read_bytes()


@forked
def test_a_forked_command_ends_by_its_signal_and_the_next_one_runs(tmp_path, three, processes):
    processes.start(["run", three, "--out", str(tmp_path), "--set", "training.epochs=100000"])
    wait_until((tmp_path / CHECKPOINT).exists)
    processes.terminate()
    assert processes.wait() == (-signal.SIGTERM, "")
    processes.start(["run", "nothing", "--out", str(tmp_path)])
    code, errors = processes.wait()
    assert code == 2
    assert errors.startswith("error: ")


@forked
def test_a_forked_command_ignores_ctrl_c_where_its_sweep_does(tmp_path, three):
    """As in the background of a script, where a shell has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        processes = ForkedProcesses([])
        processes.start(["run", three, "--out", str(tmp_path), "--set", "training.epochs=100000"])
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until((tmp_path / CHECKPOINT).exists)
    server = processes._server.pid
    (command,) = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    os.kill(int(command), signal.SIGINT)
    os.kill(server, signal.SIGINT)
    written = (tmp_path / CHECKPOINT).stat().st_mtime_ns
    wait_until(lambda: (tmp_path / CHECKPOINT).stat().st_mtime_ns > written)
    processes.terminate()
    assert processes.wait() == (-signal.SIGTERM, "")
    processes.close()


@forked
def test_a_server_that_is_killed_is_replaced(processes):
    processes.start(["--version"])
    assert processes.wait() == (0, "")
    os.kill(processes._server.pid, signal.SIGKILL)
    processes.start(["--version"])
    assert processes.wait() == (-9, "the process that it was forked from ended with code -9")
    processes.start(["--version"])
    assert processes.wait() == (0, "")


@forked
def test_a_forked_command_holds_what_is_inherited(tmp_path, three):
    """Also when the runner and the server are gone."""
    endless = Trial(("training.epochs=100000",), (), 0)
    code = (
        "import sys; from pathlib import Path\n"
        "from sheafed.sweep import Runner, Trial\n"
        f"with Runner({three!r}, [], Path({str(tmp_path)!r}), 1) as runner:\n"
        f"    runner.run([Trial({endless.variant!r}, (), 0)])"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    wait_until((tmp_path / endless.directory / CHECKPOINT).exists)
    runner.kill()
    runner.wait()
    with pytest.raises(SweepError, match="left behind"):
        Runner(three, [], tmp_path, 1).__enter__()
    os.killpg(runner.pid, signal.SIGKILL)


def wait_until(reached, seconds=60):
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
