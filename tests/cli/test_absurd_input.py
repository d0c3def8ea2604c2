"""Whatever a config, a file or a disk is like, a command ends with one line, not a traceback."""

import os
import time

import numpy as np
import pytest

from sheafed.config.reading import parse_experiment
from sheafed.errors import ConfigError

DEEP = "[" * 5000 + "]" * 5000
SGD = "training.optimizer=sgd"
ADA = {"name": "ada", "encoder": "mlp", "widths": [4]}


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        (f"seed = {DEEP}", "is not valid TOML: it is nested too deeply"),
        (f"[{'.'.join(['a'] * 2000)}]\nb = 1", "cannot be used: it is nested too deeply"),
        (f"seed = {'9' * 5000}", "is not valid TOML: Exceeds the limit"),
        ("[training]\nthreads = 1000000", "training.threads must be at most 1024, got 1000000"),
    ],
    ids=["array", "table", "digits", "threads"],
)
def test_a_config_that_cannot_be_meant(run, tmp_path, toml, text):
    (tmp_path / "config.toml").write_text(toml)
    code, _, errors = run("run", "config.toml", "--out", "r")
    assert (code, errors.count("\n")) == (2, 1)
    assert text in errors
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("value", [DEEP, "9" * 5000], ids=["array", "digits"])
def test_an_override_that_cannot_be_meant(run, value):
    code, _, errors = run("run", "digits", "--out", "r", "--set", f"data.samples={value}")
    assert (code, errors.count("\n")) == (2, 1)
    assert "data.samples must be an integer, got " in errors
    assert len(errors) < 500


@pytest.mark.parametrize(
    ("agents", "text"),
    [
        ([{**ADA, "widths": [10**9]}], "widths.0 must be at most 1048576, got 1000000000$"),
        ([{**ADA, "head": [10**30]}], "head.0 must be at most 1048576, got 1" + "0" * 30),
        ([{**ADA, "widths": [4] * 101}], "widths must have at most 100 items, got 101"),
        ([{**ADA, "widths": []}], "widths must have at least 1 items, got 0"),
        ([{**ADA, "name": f"a{k}"} for k in range(10**5)], "agents must have at most 10000 ite"),
        ([{**ADA, "name": f"a{k}", "widths": [0]} for k in range(99)], "got 0; and 89 more$"),
    ],
    ids=["width", "head", "layers", "no layers", "agents", "many errors"],
)
def test_absurd_models_are_refused_at_once(agents, text):
    began = time.process_time()
    with pytest.raises(ConfigError, match=text):
        parse_experiment({"model": {"agents": agents}})
    assert time.process_time() - began < 5


def test_many_agents_are_checked_in_linear_time():
    began = time.process_time()
    many = [{**ADA, "name": f"a{k}"} for k in range(9000)]
    assert len(parse_experiment({"model": {"agents": many}}).model.agent_names()) == 9000
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["data.samples=2"], "3 agents cannot divide 2 samples of digits"),
        (["data.split=[1e-300, 0.5, 0.5]"], "samples, too few for data.split = [1e-300, 0.5, 0.5]"),
        (["data.split=[0.5, 0.5, 1e-300]"], "which needs some for training, validation and test"),
        (["data.pilot_fraction=0.9999"], "of 1797 samples is 1797, which leaves none for the rest"),
        (["data.pilot_fraction=1e-300"], "of 1797 samples is 0, which leaves none to hold out"),
        (["data.partition=dirichlet", "data.concentration=1e308"], "must be at most 1000000"),
        (["method.channel={snr_db=-1e308}"], "snr_db must be at least -200"),
        ([SGD, "training.learning_rate=1e308"], "agent 'bo', step 0: a setting of the optimiser"),
        ([SGD, "training.weight_decay=1e308"], "too large (value cannot be converted"),
        (["data.train_fraction=1e-300"], "objective fails on a batch of 1 samples: Expected more"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_numbers_that_cannot_be_meant(run, three, overrides, text):
    given = [word for override in overrides for word in ("--set", override)]
    code, _, errors = run("run", three, "--out", "r", *given)
    assert (code, errors.count("\n")) == (2, 1)
    assert text in errors


def test_a_disk_that_is_full_before_the_first_checkpoint(run, tmp_path, three, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    code, _, errors = run("run", three, "--out", "r")
    assert (code, errors.count("\n")) == (2, 1)
    assert "cannot write r/metrics.jsonl: No space left on device; make room" in errors


@pytest.mark.parametrize("error", [MemoryError("32 TiB"), RuntimeError("CUDA out of memory.\nTip")])
def test_too_little_memory(run, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("sheafed.config.running.run_experiment", fail)
    code, _, errors = run("run", "digits", "--out", "r")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: not enough memory (")


def test_another_error_keeps_its_traceback(run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr("sheafed.config.running.run_experiment", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        run("run", "digits", "--out", "r")


@pytest.mark.parametrize("command", ["run", "sweep", "network up", "agent"])
@pytest.mark.parametrize("out", ["file", "/proc/none"])
def test_a_place_that_cannot_be_written(run, tmp_path, three, certificates, command, out):
    (tmp_path / "file").write_text("precious")
    own = {"cert": "ada.pem", "key": "ada.key", "ca": "authority.pem"}
    more = {
        "sweep": ["--seeds", "0"],
        "agent": [
            *("--name", "bo", "--listen", "tls/127.0.0.1:0"),
            *(w for k, f in own.items() for w in (f"--{k}", certificates / f)),
        ],
    }
    code, _, errors = run(*command.split(), three, "--out", out, *more.get(command, []))
    assert (code, errors.count("\n")) == (2, 1), errors
    assert f"cannot write {'into the directory ' if out == 'file' else ''}{out}: " in errors
    assert (tmp_path / "file").read_text() == "precious"


def test_a_device_is_not_replaced_by_a_file(run, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((40, 3)))
    assert run("align", "a=a.npy", "b=b.npy", "--out", "al")[0] == 0
    os.mkfifo("pipe")
    way = ["--alignment", "al", "--from", "a", "--to", "b"]
    code, _, errors = run("send", *way, "a.npy", "--out", "pipe")
    assert (code, errors) == (
        2,
        "error: cannot write pipe: it is not a file; make room, or choose another place\n",
    )


@pytest.mark.parametrize("shape", [(2**40, 4), (2**70, 4)])
def test_an_array_that_claims_more_than_there_is(run, tmp_path, shape):
    with (tmp_path / "huge.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
    np.save(tmp_path / "b.npy", np.ones((40, 4)))
    code, _, errors = run("align", "a=huge.npy", "b=b.npy", "--out", "al")
    assert (code, errors.count("\n")) == (2, 1)
    assert "cannot read huge.npy as a NumPy array" in errors


@pytest.mark.parametrize("content", [b"", b'{"seed": ', b"\xff", b"[" * 10**5, b"[]"])
def test_a_damaged_config_of_a_run(run, tmp_path, three, content):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "config.json").write_bytes(content)
    (tmp_path / "r" / "metrics.jsonl").touch()
    for command in (["run", three, "--out", "r", "--resume"], ["evaluate", "r"]):
        code, _, errors = run(*command)
        assert (code, errors.count("\n")) == (2, 1)
        assert "r/config.json cannot be used, it is damaged" in errors
    code, _, errors = run("report", "r", "--out", "page.html")
    assert code == 2
    assert errors.startswith("error: r/config.json ")
    assert (tmp_path / "r" / "config.json").read_bytes() == content
