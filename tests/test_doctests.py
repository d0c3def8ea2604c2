"""The examples in the docstrings of the package run and print what they say."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import sheafed

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sheafed.__path__, "sheafed.")
    if module.name != "sheafed.__main__"
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    assert doctest.testmod(import_module(name), optionflags=FLAGS).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = sum(
        bool(test.examples) for name in MODULES for test in finder.find(import_module(name))
    )
    assert found >= 30
