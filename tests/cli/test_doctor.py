import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sheafed.cli import doctor
from sheafed.devices import auto_device


def test_every_extra_is_listed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"])


def test_installed_and_missing_packages_are_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    genuine = metadata.version

    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return genuine(name)

    monkeypatch.setattr(metadata, "version", version)
    doctor.doctor()
    printed = capsys.readouterr().out
    assert f"torch {genuine('torch')}" in printed
    assert f"training.device=auto takes {auto_device()}" in printed
    assert "pip install 'sheafed[tune]'" in printed
    assert f"sheafed {genuine('sheafed')}" in printed


def test_a_package_that_two_parts_of_an_extra_need_is_listed_once():
    twice = [
        Requirement("torch>=2"),
        Requirement("nothing-such"),
        Requirement("torch>=99"),
        Requirement("nothing-such>=1"),
    ]
    assert doctor._versions(twice) == f"torch {metadata.version('torch')}, nothing-such -"
    assert doctor._missing(twice) == ["nothing-such", "torch"]


def test_a_missing_required_package_is_an_error(capsys, monkeypatch):
    genuine = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "0.0.1" if n == "scipy" else genuine(n))
    with pytest.raises(SystemExit):
        doctor.doctor()
    assert "scipy" in capsys.readouterr().err
