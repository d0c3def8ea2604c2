import json

import pytest


@pytest.fixture
def sweep(run):
    return lambda *arguments: run("sweep", *arguments)


def test_a_sweep_runs_what_is_missing_and_tabulates(sweep, tmp_path, in_process):
    command = ["digits", "--out", "s", "--seeds", "0", "--set", "training.epochs=1"]
    command += ["--vary", "method.penalty=0,0.1"]
    code, printed, _ = sweep(*command)
    assert code == 0
    assert "2 runs, 0 done, 2 to go" in printed
    assert all(f"\npenalty={value} " in printed for value in ("0", "0.1"))
    table = (tmp_path / "s" / "table.md").read_text()
    for path in (tmp_path / "s").glob("*/seed-0/summary.json"):
        summary = json.loads(path.read_text())
        assert f"{summary['private_accuracy']:.3f}" in table
    code, printed, _ = sweep(*command)
    assert code == 0
    assert "2 runs, 2 done, 0 to go" in printed
    assert len(in_process) == 2


def test_a_mistake_shows_before_the_first_run(sweep, tmp_path):
    code, _, complaint = sweep("digits", "--out", "s", "--vary", "data.shift=0.1,7")
    assert code == 2
    assert "data.shift must be at most 1, got 7" in complaint
    assert not (tmp_path / "s").exists()


OWN_METHOD = """
from sheafed import NonCooperative
def make(shrinkage=0.5):
    return NonCooperative(shrinkage=shrinkage)
"""


@pytest.mark.parametrize("flag", ["--vary", "--choose", "--search"])
def test_options_of_an_own_method_are_checked_before_the_first_run(
    flag, sweep, tmp_path, in_process, forget_modules
):
    (tmp_path / "my_own_method.py").write_text(OWN_METHOD)
    forget_modules("my_own_method")
    command = ["digits", "--out", "s", "--seeds", "0", "--allow-code", "my_own_method.py"]
    command += ["--set", "method.name=custom", "--set", "method.factory=my_own_method:make"]
    values = "0.1..1" if flag == "--search" else "0.1,1"
    code, _, complaint = sweep(*command, flag, f"method.options.shrinkag={values}")
    assert code == 2
    assert "method.options {'shrinkag': 0.1}" in complaint
    assert "unexpected keyword argument 'shrinkag'" in complaint
    assert not (tmp_path / "s").exists()
    assert in_process == []


def test_failed_runs_are_reported(sweep, in_process):
    command = ["digits", "--out", "s", "--seeds", "0", "--set", "training.epochs=1"]
    code, _, complaint = sweep(*command, "--set", "data.name=cifar")
    assert code == 2
    assert "1 of 1 runs failed" in complaint
    assert "unknown data set 'cifar'" in complaint
    assert "no run of the config with seed 0 has finished" in complaint


def test_a_row_without_the_chosen_key_and_one_with(sweep, tmp_path, in_process):
    command = ["digits", "--out", "s", "--seeds", "0", "--set", "training.epochs=1"]
    command += ["--variant", "method.name=non-cooperative", "--variant", "method.name=comfed"]
    code, printed, _ = sweep(*command, "--choose", "method.penalty=0.1")
    assert code == 0
    assert "method.penalty does not apply to method.name=non-cooperative" in printed
    assert "2 runs, 0 done, 2 to go" in printed
    assert len(list((tmp_path / "s").glob("name=comfed_penalty=0.1-*"))) == 1
    code, _, complaint = sweep(*command[:-2], "--choose", "method.penalty=0.1")
    assert code == 2
    assert "method.penalty cannot be chosen: unknown option of non-cooperative" in complaint


def test_a_search_goes_on_with_its_runs(sweep, tmp_path, in_process):
    command = ["digits", "--out", "s", "--seeds", "0", "--set", "training.epochs=1"]
    command += ["--variant", "method.name=comfed", "--search", "method.penalty=1e-5..1"]
    code, _, _ = sweep(*command, "--trials", "1")
    assert code == 0
    (first,) = (tmp_path / "s").glob("name=comfed_penalty=*")
    code, _, _ = sweep(*command, "--trials", "2")
    assert code == 0
    assert len(in_process) == 2
    both = set((tmp_path / "s").glob("name=comfed_penalty=*"))
    assert first in both
    assert len(both) == 2
    value = float(first.name.split("penalty=")[1].rsplit("-", 1)[0])
    assert 1e-5 <= value <= 1


def test_a_search_is_checked_before_the_first_run(sweep, tmp_path):
    command = ["digits", "--out", "s", "--search"]
    code, _, complaint = sweep(*command, "data.shift=0.1..7")
    assert code == 2
    assert "data.shift must be at most 1, got 7" in complaint
    code, _, complaint = sweep(*command, "data.shift=0.1..1", "--choose", "method.penalty=1")
    assert code == 2
    assert "exclude each other" in complaint
    assert not (tmp_path / "s").exists()


def test_bad_seeds(sweep):
    code, _, complaint = sweep("digits", "--out", "s", "--seeds", "a")
    assert code == 2
    assert "'a'" in complaint
