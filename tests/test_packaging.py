"""What is published: the wheel has every file, is described well, and works where it is alone."""

import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from twine.commands.check import check

from sheafed import __version__

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "tests" / "helpers" / "installed_package.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", out]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--no-index", "--no-compile", "--target", target, built[0]]
    subprocess.run(pip, check=True, capture_output=True)
    return target


def test_the_wheel_has_every_file_of_the_package(built):
    tree = ROOT / "src"
    expected = {
        path.relative_to(tree).as_posix()
        for path in (tree / "sheafed").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in ZipFile(built[0]).namelist() if name.startswith("sheafed/")}
    assert held == expected
    assert {"sheafed/py.typed", "sheafed/config/toml/digits.toml"} <= held


def test_an_index_accepts_and_can_show_the_description(built):
    assert not check([str(path) for path in built], strict=True)


def test_the_description_has_no_link_that_only_the_repository_resolves(installed):
    (metadata,) = installed.glob("*.dist-info")
    described = PathDistribution(metadata).metadata
    text = described.get_payload()
    assert described["Description-Content-Type"] == "text/markdown"
    assert "All results (`docs/results/index.md`)" in text
    assert not re.search(r"\]\((?!\w+:)", text)


def test_the_wheel_works_with_its_declared_dependencies_alone(installed, tmp_path):
    command = [sys.executable, "-I", SMOKE, installed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"sheafed {__version__} from {installed} works"
