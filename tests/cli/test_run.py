import json
import sys

import pytest

from sheafed.cli import main


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sheafed", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call


def test_a_new_config_runs_and_goes_on(run, tmp_path):
    assert run("new", "mine")[0] == 0
    short = ["--set", "training.epochs=2", "--set", "training.evaluate_every=1"]
    code, printed, _ = run("run", "mine.toml", "--out", "r", *short, "--seed", 3)
    assert code == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (summary["seed"], summary["epochs"]) == (3, 2)
    assert f"{summary['private_accuracy']:.3f}" in printed
    longer = ["--set", "training.epochs=3", "--set", "training.evaluate_every=1"]
    assert run("run", "mine.toml", "--out", "r", *longer, "--seed", 3, "--resume")[0] == 0
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["training"]["epochs"] == 3


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "nowhere", "--out", "r"], "neither a file nor a preset"),
        (["run", "digits", "--out", "r", "--set", "data.shift=7"], "data.shift is 7"),
        (["run", "digits", "--out", "r", "--set", "data.name=cifar"], "no data set named 'cifar'"),
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
