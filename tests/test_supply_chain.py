"""What is installed: ranges that hold the tested versions, and a lock that pip enforces."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from packaging.requirements import Requirement

from sheafed import optional
from sheafed.datasets import plot_label_distribution
from sheafed.errors import MissingDependencyError
from sheafed.reproduction import reproduce
from sheafed.training.history import RunHistory

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
UNBOUNDED = {"cryptography", "packaging", "pillow", "pyarrow"}
"""New major versions by the calendar."""
MANDATORY = {
    *("torch", "numpy", "scipy", "scikit-learn", "networkx", "safetensors"),
    *("pydantic", "typer", "rich", "pillow", "packaging", "threadpoolctl"),
}
PINS = dict(re.findall(r"^([\w-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
LOCK = runpy.run_path(str(ROOT / "tools" / "lock.py"))


def declared():
    used = (extra for extra in EXTRAS if extra not in ("dev", "docs"))
    texts = [*PROJECT["dependencies"], *(need for extra in used for need in EXTRAS[extra])]
    return [Requirement(text) for text in texts]


def test_only_what_training_alignment_and_the_commands_need_is_mandatory():
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == MANDATORY


def test_ranges_are_stated_and_hold_the_tested_versions():
    for need in declared():
        bounds = {each.operator for each in need.specifier}
        assert bounds == ({">="} if need.name in UNBOUNDED else {">=", "<"}), need
        assert need.name not in PINS or PINS[need.name] in need.specifier, need
    assert PINS.keys() >= MANDATORY


def test_figures_say_what_they_need(monkeypatch, tmp_path):
    """The wheel is tried without them in `test_packaging.py`."""
    monkeypatch.setattr(optional, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"matplotlib; install .*sheafed\[report\]"):
        plot_label_distribution(torch.ones(2, 2), tmp_path / "figure.png")
    with pytest.raises(MissingDependencyError, match=r"sheafed\[report\]"):
        RunHistory.plot(object())
    with pytest.raises(MissingDependencyError, match="the figure needs matplotlib"):
        reproduce("shift", "quick", tmp_path / "out", [0], 1)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def index(tmp_path):
    """A place with two tiny wheels, of which one requires the other."""
    for name, needs in (("tiny-one", "tiny-two>=1"), ("tiny-two", None)):
        write_wheel(tmp_path, name, f"Requires-Dist: {needs}\n" if needs else "")
    return tmp_path


def write_wheel(place, name, more, code=""):
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    with ZipFile(place / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", code)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{more}"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_lock_names_versions_and_hashes_and_pip_enforces_it(index, monkeypatch):
    for setting in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(setting, raising=False)
    local = ["--no-index", "--find-links", str(index)]
    lines = LOCK["lock_lines"](LOCK["resolve"](["tiny_one"], local))
    assert [line.split(" --hash=sha256:")[0] for line in lines] == [
        "tiny-one==1.0",
        "tiny-two==1.0",
    ]
    assert all(re.fullmatch(r"[\w.=-]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)

    lock = index / "requirements.lock"
    lock.write_text("\n".join(lines))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    pip += [*local, "-r", str(lock), "--target"]
    subprocess.run([*pip, str(index / "first")], check=True, capture_output=True)
    assert (index / "first" / "tiny_two.py").exists()
    write_wheel(index, "tiny-two", "", code="import os")
    refused = subprocess.run([*pip, str(index / "second")], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (index / "second").exists()


def test_what_has_no_hash_cannot_be_locked():
    item = {"metadata": {"name": "a", "version": "1"}, "download_info": {"url": "file:///a"}}
    with pytest.raises(SystemExit, match="a 1 is no archive with a SHA-256"):
        LOCK["lock_lines"]({"install": [item]})
    with pytest.raises(SystemExit, match="unknown extra speed"):
        LOCK["requirements"]({"project": PROJECT}, ["speed"])
