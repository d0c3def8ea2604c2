"""Trials in processes of their own: their files, their lock, and how they are stopped."""

import json
import subprocess
import sys
from threading import Event

import pytest

from sheafed.checkpointing.run_directory import CONFIG
from sheafed.errors import ConfigError, SweepError
from sheafed.sweep.results import is_finished
from sheafed.sweep.runner import FAILURE, Runner, read_failure
from sheafed.sweep.trials import Trial
from tests.helpers.warm_python import warm_python


def test_a_failure_is_kept_until_the_trial_succeeds(tmp_path, three, capsys, monkeypatch):
    good, bad = Trial((), (), 0), Trial(("data.name=cifar",), (), 0)
    runner = Runner(three, ["training.oracle=false"], tmp_path / "s", 2)
    (runner.out / good.directory).mkdir(parents=True)
    (runner.out / good.directory / FAILURE).write_text("an earlier one")
    with warm_python() as program, runner:
        monkeypatch.setattr(sys, "executable", program)
        runner.run([good, bad, good])
    printed = capsys.readouterr().out
    assert "1/2" in printed
    assert "2/2" in printed
    assert is_finished(good, runner.out)
    assert read_failure(good, runner.out) is None
    assert "unknown data set 'cifar'" in read_failure(bad, runner.out)
    summary = json.loads((runner.out / good.directory / "summary.json").read_text())
    assert {edge["oracle_accuracy"] for edge in summary["edges"]} == {None}


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


def test_an_interruption_stops_the_processes_and_is_no_failure(tmp_path, three, monkeypatch):
    endless, started, children = Trial(("training.epochs=100000",), (), 0), Event(), []
    start = subprocess.Popen

    def watched(*arguments, **options):
        children.append(start(*arguments, **options))
        started.set()
        return children[0]

    monkeypatch.setattr(subprocess, "Popen", watched)
    with Runner(three, [], tmp_path / "s", 2) as runner:

        def work(item):
            if item is endless:
                return runner.ensure(endless)
            started.wait()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runner.map(work, [None, endless])
    assert children[0].returncode != 0
    assert not is_finished(endless, runner.out)
    assert read_failure(endless, runner.out) is None


def test_a_bound_on_memory(tmp_path, three):
    trial = Trial((), (), 0)
    with Runner(three, [], tmp_path / "s", 1, memory=200 * 2**20) as runner:
        runner.run([trial])
    assert not is_finished(trial, runner.out)
    assert read_failure(trial, runner.out)
