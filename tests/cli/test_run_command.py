import json
import os
import shlex
import signal

import pytest

from sheafed.cli.print_placement import PrintPlacement


def test_a_new_config_runs_and_goes_on(run, tmp_path):
    assert run("new", "mine")[0] == 0
    short = ["--set", "training.epochs=1", "--set", "training.evaluate_every=1"]
    code, printed, _ = run("run", "mine.toml", "--out", "r", *short, "--seed", 3)
    assert code == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (summary["seed"], summary["epochs"]) == (3, 1)
    assert f"{summary['private_accuracy']:.3f}" in printed
    assert (tmp_path / "r" / "label_distribution.png").stat().st_size > 5_000
    longer = ["--set", "training.epochs=2", "--set", "training.evaluate_every=1"]
    assert run("run", "mine.toml", "--out", "r", *longer, "--seed", 3, "--resume")[0] == 0
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["training"]["epochs"] == 2


def test_the_stub_of_a_method_runs_and_resumes(run, tmp_path, forget_modules):
    forget_modules("own_method")
    assert run("new", "own")[0] == 0
    own = ["--set", "method.name=custom", "--set", "method.factory=own_method:MyMethod"]
    command = ["run", "own.toml", *own, "--set", "training.evaluate_every=1"]
    code, _, complaint = run(*command, "--out", "whole")
    assert code == 2
    assert "--allow-code PATH/own_method.py" in complaint
    assert not (tmp_path / "whole").exists()
    command += ["--allow-code", "own_method.py"]
    assert run(*command, "--out", "whole", "--set", "training.epochs=2")[0] == 0
    assert run(*command, "--out", "parts", "--set", "training.epochs=1")[0] == 0
    assert run(*command, "--out", "parts", "--set", "training.epochs=2", "--resume")[0] == 0
    whole, parts = ((tmp_path / d / "metrics.jsonl").read_text() for d in ("whole", "parts"))
    assert whole == parts
    assert 0 < json.loads(whole.splitlines()[-1])["behind"] < 1


@pytest.mark.parametrize("method", ["non-cooperative", "comfed"])
def test_another_method_drops_the_options_of_the_preset(run, method):
    code, printed, _ = run(
        *("run", "digits", "--out", "r", "--set", "training.epochs=1"),
        *("--set", f"method.name={method}"),
    )
    assert code == 0
    assert "distillation" not in printed


def test_a_run_is_never_overwritten(run, tmp_path):
    command = ["run", "digits", "--out", "r", "--set", "training.epochs=1"]
    assert run(*command)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    code, _, complaint = run(*command)
    assert (code, complaint[:7]) == (2, "error: ")
    assert "--resume" in complaint
    code, _, complaint = run(*command, "--resume", "--set", "method.penalty=0.7")
    assert code == 2
    assert "another config" in complaint
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_refused_resume_leaves_the_record_as_it_is(run, tmp_path, three):
    command = ["run", three, "--out", "r", "--set", "training.epochs=2"]
    assert run(*command)[0] == 0
    before = contents(tmp_path / "r")
    refused = {
        "training.learning_rate=0.1": "its optimiser's lr of agent 'bo' is 0.003, this one's 0.1",
        "training.weight_decay=0.1": "its optimiser's weight_decay of agent 'bo'",
        "training.max_grad_norm=1.0": "its max_grad_norm of agent 'bo' is None, this one's 1.0",
        "training.epochs=1": "2 epochs of this run are done, 1 were asked for",
        "method.penalty=0.7": "another config, in method.penalty;",
    }
    for override, complaint in refused.items():
        code, _, errors = run(*command, "--resume", "--set", override)
        assert (code, errors.count("\n")) == (2, 1), errors
        assert complaint in errors
        assert contents(tmp_path / "r") == before


def test_a_resume_that_changes_a_setting_says_so_in_the_report(run, tmp_path, three):
    command = ["run", three, "--out", "r", "--set"]
    assert run(*command, "training.epochs=1")[0] == 0
    longer = ["training.epochs=3", "--set", "training.evaluate_every=2"]
    assert run(*command, *longer, "--resume")[0] == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    (change,) = summary["changes"]
    assert change["setting"] == "evaluate_every"
    assert run("report", "r", "--out", "page.html")[0] == 0
    sentence = f"From round {change['round']} on: evaluate_every 2, before 1."
    assert sentence in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "nowhere", "--out", "r"], "neither a file nor a preset"),
        (
            ["run", "digits", "--out", "r", "--set", "data.shift=7"],
            "data.shift must be at most 1, got 7",
        ),
        (["run", "digits", "--out", "r", "--set", "data.name=cifar"], "unknown data set 'cifar'"),
    ],
)
def test_bad_input_writes_nothing(run, tmp_path, arguments, text):
    code, _, complaint = run(*arguments)
    assert code == 2
    assert text in complaint
    assert not (tmp_path / "r").exists()


def test_new_overwrites_nothing(run, tmp_path):
    (tmp_path / "mine.toml").write_text("precious")
    assert run("new", "mine")[0] == 2
    assert (tmp_path / "mine.toml").read_text() == "precious"


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_says_what_was_saved_and_how_to_go_on(run, tmp_path, monkeypatch, three):
    def press(self, log):
        if self.history.rounds == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(PrintPlacement, "on_round", lambda _, n, log: press(n, log))
    command = ["run", three, "--out", "a run", "--set", "training.epochs=1"]
    code, _, errors = run(*command, "--seed", 3)
    assert code == 130
    assert "Traceback" not in errors
    assert "interrupted after round 2" in errors
    again = errors.splitlines()[-1].strip()
    assert shlex.split(again) == ["sheafed", *command, "--seed", "3", "--resume"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(*shlex.split(again)[1:])[0] == 0


@pytest.mark.parametrize("below", ["", "/run"])
def test_an_out_that_cannot_be_written_is_said_before_anything_is_read(run, tmp_path, below):
    (tmp_path / "file").write_text("")
    code, _, errors = run("run", "digits", "--out", f"file{below}")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: cannot write into the directory file")


def test_a_file_that_a_command_cannot_write_is_one_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, errors = run("new", "file/mine")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: cannot write file/mine.toml: Not a directory")


def test_restarts_without_processes_are_refused(run, tmp_path):
    code, _, complaint = run("run", "digits", "--out", "r", "--max-restarts", 2)
    assert code == 2
    assert "--max-restarts is about the processes of --processes" in complaint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["1bad", "my exp", "my-exp", "exp.toml"])
def test_a_name_that_is_no_module_writes_nothing(run, tmp_path, name):
    code, _, complaint = run("new", name)
    assert code == 2
    assert f"as {name}_method.py is a Python module; got '{name}'" in complaint
    assert not list(tmp_path.iterdir())


def test_the_next_command_can_be_pasted(run, tmp_path):
    (tmp_path / "my experiments").mkdir()
    code, printed, _ = run("new", "my experiments/first")
    assert code == 0
    *_, config, option, out = shlex.split(printed.partition("next: ")[2])
    assert (config, option, out) == ("my experiments/first.toml", "--out", "runs/first")
    assert (tmp_path / config).exists()
