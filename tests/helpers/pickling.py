"""Nothing that comes over a wire or from a file may be unpickled: here it is made impossible."""

import io
import pickle
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import torch

PICKLING = ("dump", "dumps", "load", "loads", "Pickler", "Unpickler")


class Forbidden:
    """In the place of a function it fails when called, in that of a class when inherited too."""

    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise AssertionError("pickle was used")

    def __init_subclass__(cls) -> NoReturn:
        raise AssertionError("pickle was used")


def forbid(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let everything that pickles fail, and check that it does."""
    for name in PICKLING:
        replace(pickle, name, Forbidden)
    replace(torch, "load", Forbidden)
    with pytest.raises(AssertionError, match="pickle was used"):
        torch.save(torch.ones(1), io.BytesIO())
