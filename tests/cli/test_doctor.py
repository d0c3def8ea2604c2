import tomllib
from importlib import metadata
from pathlib import Path

import pytest

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


def test_a_missing_required_package_is_an_error(capsys, monkeypatch):
    genuine = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "0.0.1" if n == "scipy" else genuine(n))
    with pytest.raises(SystemExit):
        doctor.doctor()
    assert "scipy" in capsys.readouterr().err
