"""Packages whose names are loaded on their first use."""

import importlib
import subprocess
import sys

import pytest

import sheafed

PACKAGES = ("sheafed", "sheafed.checkpointing", "sheafed.config", "sheafed.datasets")
PACKAGES += (
    "sheafed.network",
    "sheafed.pretrained",
    "sheafed.transport",
    "sheafed.transport.zenoh",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_listed_and_can_be_imported(name: str) -> None:
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))
    exec(f"from {name} import *", found := {})
    assert set(package.__all__) <= found.keys()
    assert all(found[each] is getattr(package, each) for each in package.__all__)


def test_names_are_those_of_their_modules() -> None:
    from sheafed.agents.agent import Agent
    from sheafed.training.train import train

    assert (sheafed.Agent, sheafed.train) == (Agent, train)
    assert "Agent" in vars(sheafed)  # found without a search from then on


def test_a_package_loads_nothing_until_it_is_used() -> None:
    code = (
        f"import sys, {', '.join(PACKAGES)}\n"
        "print('torch' in sys.modules, 'sheafed.names' in sys.modules)\n"
        "print(sheafed.names.check_name('ada'))"  # a submodule that nobody has imported
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.split() == ["False", "False", "ada"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sheafed' has no attribute 'Agents'"):
        _ = sheafed.Agents  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'agent'$"):
        _ = sheafed.agent  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'Agents'"):
        from sheafed import Agents  # type: ignore[attr-defined] # noqa: F401


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("sheafed", "FedProto", "sheafed.methods"),
        ("sheafed", "EarlyStopping", "sheafed.training"),
        ("sheafed", "ring", "sheafed.graphs"),
        ("sheafed.datasets", "Consensus", "sheafed and in sheafed.methods"),
    ],
)
def test_a_name_of_another_package_is_found_without_loading_any(module, name, home):
    code = (
        f"import sys, {module}\n"
        f"try: {module}.{name}\n"
        "except AttributeError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert printed == [
        f"module '{module}' has no attribute '{name}'; {name} is in {home}",
        "False",
    ]
