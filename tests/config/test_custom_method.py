"""A config that names code: nothing is imported that was not allowed by name."""

import json
import subprocess
import sys
from unittest.mock import Mock

import networkx as nx
import pytest

import sheafed
from sheafed.config import build_federation, parse_experiment, run_experiment, running
from sheafed.config.evaluation import evaluate_run
from sheafed.errors import ConfigError
from sheafed.methods import NonCooperative
from sheafed.network.launcher import CERTIFICATES, LocalLauncher
from sheafed.sweep.processes import CAN_FORK
from sheafed.sweep.runner import Runner
from sheafed.sweep.trials import Trial
from sheafed.training import torchrun
from sheafed.transport.zenoh.credentials import AUTHORITY, certificate_and_key

CODE = """
from pathlib import Path
from subprocess import run
from sheafed import NonCooperative
Path(__file__).with_suffix(".ran").touch()
def make(shrinkage=0.5):
    return NonCooperative(shrinkage=shrinkage)
"""


@pytest.fixture
def own(tmp_path, monkeypatch, forget_modules):
    """A file with a method in the working directory, which says so when it is run."""
    (tmp_path / "my_own_method.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    forget_modules("my_own_method")
    return tmp_path / "my_own_method.py"


def config(factory, **options):
    method = {"name": "custom", "factory": factory, "options": options}
    return parse_experiment({"method": method, "training": {"epochs": 1, "oracle": False}})


def made(factory, *allowed, **options):
    return config(factory, **options).method.load(allowed)


def test_a_config_alone_runs_no_code(own, capfd):
    hostile = config("os:system", command="echo owned")
    for allowed in ([], ["my_own_method.py"], ["sheafed"], ["posix"], ["os.path"], ["os.py"]):
        with pytest.raises(ConfigError, match=r"not allowed|not a file"):
            build_federation(hostile, allow_code=allowed)
    with pytest.raises(
        ConfigError, match=r"my_own_method'.*not allowed.*allow-code PATH/my_own_me"
    ):
        made("my_own_method:make")
    assert capfd.readouterr().out == ""
    assert not own.with_suffix(".ran").exists()


def test_code_is_allowed_by_its_file_or_its_module(own, monkeypatch):
    expected = NonCooperative(shrinkage=0.3)
    before = list(sys.path)
    assert made("my_own_method:make", "other.py", "my_own_method.py", shrinkage=0.3) == expected
    assert sys.path == before
    assert made("my_own_method:make", own, shrinkage=0.3) == expected
    del sys.modules["my_own_method"]
    with pytest.raises(ConfigError, match="No module named 'my_own_method'"):
        made("my_own_method:make", "my_own_method")  # not from the working directory
    monkeypatch.syspath_prepend(own.parent)
    assert made("my_own_method:make", "my_own_method", shrinkage=0.3) == expected


def test_what_an_allowed_module_imports_is_not_allowed_with_it(own):
    for factory in ("my_own_method:run", "my_own_method:Path", "my_own_method:__name__"):
        with pytest.raises(ConfigError, match="'my_own_method' defines"):
            made(factory, own)
    with pytest.raises(ConfigError, match="'os' defines"):
        made("os:system", "os", command="echo owned")


@pytest.mark.parametrize(
    ("factory", "allowed", "text"),
    [
        ("my_own_method", "my_own_method.py", "module:name"),
        ("my_own_method:", "my_own_method.py", "module:name"),
        ("my_own_method:other", "my_own_method.py", "other"),
        ("absent:make", "absent.py", r"absent\.py, which allow-code names"),
        ("a.b:make", "a.b.py", "not a file of a Python module"),
    ],
)
def test_mistakes_are_named(own, factory, allowed, text):
    with pytest.raises(ConfigError, match=text):
        made(factory, allowed)


def test_wrong_options_are_named(own):
    with pytest.raises(ConfigError, match="strength"):
        made("my_own_method:make", own, strength=3)


def test_a_file_does_not_replace_another_module(own, tmp_path):
    (tmp_path / "random.py").write_text(CODE)
    with pytest.raises(ConfigError, match=r"'random' is .* already; rename"):
        made("random:make", "random.py")
    (tmp_path / "broken_method.py").write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        made("broken_method:make", "broken_method.py")
    assert "broken_method" not in sys.modules


def test_a_run_directory_runs_no_code_either(own, run_of_own_method):
    """One from someone else names code in its config.json."""
    with pytest.raises(ConfigError, match="not allowed"):
        sheafed.load(run_of_own_method)
    with pytest.raises(ConfigError, match="not allowed"):
        evaluate_run(run_of_own_method)
    given = sheafed.load(run_of_own_method, method=NonCooperative())
    allowed = sheafed.load(run_of_own_method, allow_code=[own])
    assert given.method == allowed.method
    found = evaluate_run(run_of_own_method, oracle=False, allow_code=[own])
    assert found.private == allowed.evaluate("test", False).private


@pytest.fixture
def run_of_own_method(own, monkeypatch):
    monkeypatch.setattr(running, "plot_label_distribution", lambda *_, **__: None)
    small = {"model": {"members": ["bo", "eli"]}, "graph": {"kind": "line"}}
    tables = config("my_own_method:make").model_dump(mode="json") | small
    run_experiment(parse_experiment(tables), own.parent / "run", allow_code=[own], progress=False)
    return own.parent / "run"


def test_processes_that_we_start_do_not_import_from_the_working_directory(tmp_path, monkeypatch):
    """`python -m` puts the working directory first: a `typer.py` there would be run."""
    started = []
    process = Mock(returncode=0, **{"communicate.return_value": ("", "")})
    process.stdout.readline.return_value = '[0, ""]'

    def start(command, **_):
        started.append(command)
        return process

    monkeypatch.setattr("torch.distributed.run.main", started.append)
    torchrun.launch(1, 0, 1, [], tmp_path)
    runner = Runner("digits", [], tmp_path / "sweep", 1, allow_code=["own.py"])
    with runner, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        runner.ensure(Trial((), (), 0))
    request = started[-1]
    if CAN_FORK:
        request = json.loads(process.stdin.write.call_args_list[0].args[0])
    assert request[-2:] == ["--allow-code", "own.py"]
    for files in certificate_and_key(tmp_path / CERTIFICATES, "ada"):
        files.parent.mkdir(exist_ok=True)
        files.touch()
    (tmp_path / CERTIFICATES / f"{AUTHORITY}.pem").touch()
    alone = nx.Graph()
    alone.add_node("ada")
    started += LocalLauncher("digits", alone, tmp_path).commands.values()

    (tmp_path / "typer.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    assert len(started) == 3
    for command in started:
        python = command[command.index(sys.executable) : command.index("-m")]
        assert subprocess.run([*python, "-c", "import typer"]).returncode == 0
