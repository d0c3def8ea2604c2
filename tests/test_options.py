"""Options are checked alike in Python and read from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from sheafed.errors import InputError, ShapeError
from sheafed.options import (
    Count,
    Fraction,
    OneOf,
    Positive,
    PythonOnly,
    Switch,
    explain,
    options,
)


@options
class Cold:
    kind: Literal["cold"] = field(default="cold", kw_only=True, repr=False)
    degrees: Positive


@options
class Hot:
    kind: Literal["hot"] = field(default="hot", kw_only=True, repr=False)
    degrees: Positive = 90.0


@options
class Cup:
    """A cup.

    Args:
        size: in
            decilitres.
    """

    size: Count = 2
    full: Fraction = 1.0
    lid: Switch = False
    tea: Annotated[Cold | Hot, OneOf(Cold, Hot, default=Hot)] = Hot()
    pour: PythonOnly[Callable[[float], float]] = field(default=abs, repr=False)

    def __post_init__(self) -> None:
        if self.lid and self.full == 0:
            raise ShapeError("nothing to cover")


def test_it_is_an_ordinary_frozen_dataclass() -> None:
    cup = Cup(3, full=1)
    assert repr(cup) == "Cup(size=3, full=1.0, lid=False, tea=Hot(degrees=90.0))"
    assert replace(cup, lid=True) == Cup(3, 1.0, True)
    assert hash(cup) == hash(Cup(3))
    with pytest.raises(FrozenInstanceError):
        cup.size = 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "3"}, "Cup: size must be an integer, got '3'"),
        ({"size": 3.0}, "Cup: size must be an integer, got 3.0"),
        ({"size": True}, "Cup: size must be an integer, got True"),
        ({"full": "1"}, "Cup: full must be a number, got '1'"),
        ({"full": float("nan")}, "Cup: full must be at most 1, got nan"),
        ({"lid": 1}, "Cup: lid must be true or false, got 1"),
        ({"tea": {"kind": "iced"}}, "Cup: tea.kind must be 'cold' or 'hot', got 'iced'"),
        ({"tea": {"degrees": -1}}, "Cup: tea.degrees must be above 0, got -1"),
        ({"tea": "cold"}, "Cup: tea.degrees is missing"),
        ({"tea": 3}, "Cup: tea must be 'cold' or 'hot' or Cold() or Hot(), got 3"),
        ({"tea": {"milk": 3}}, "Cup: unknown key tea.milk; allowed keys: kind, degrees"),
        ({"size": 0, "full": 2}, "Cup: size must be at least 1, got 0; full must be at most 1"),
    ],
)
def test_what_cannot_be_used_is_an_input_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        Cup(**given)
    assert str(refused.value).startswith(message)


def test_an_error_of_the_class_itself_is_raised_as_it_is() -> None:
    with pytest.raises(ShapeError, match=r"^nothing to cover$"):
        Cup(lid=True, full=0)


def test_unknown_and_missing_arguments_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"Cup: .*'colour'; options: size, full, lid, tea"):
        Cup(colour="blue")
    with pytest.raises(TypeError, match="Cold: missing a required argument: 'degrees'"):
        Cold()


def test_tables_and_instances_are_the_same() -> None:
    assert Cup(tea={"kind": "cold", "degrees": 5}) == Cup(tea=Cold(5))
    assert Cup(tea={"degrees": 80}) == Cup(tea=Hot(80))
    assert Cup(tea="hot") == Cup()


def test_a_file_cannot_give_code() -> None:
    adapter, table = TypeAdapter(Cup), {"pour": "abs"}
    assert Cup(pour=round).pour is round
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(table)
    assert explain(refused.value, table) == "unknown key pour; allowed keys: size, full, lid, tea"
    assert adapter.dump_python(Cup(pour=round), mode="json") == {
        "size": 2,
        "full": 1.0,
        "lid": False,
        "tea": {"kind": "hot", "degrees": 90.0},
    }


def test_a_subclass_without_the_decorator() -> None:
    class Mug(Cup):
        def empty(self) -> bool:
            return self.full == 0

    assert Mug(full=0).empty()
    with pytest.raises(InputError, match="size"):
        Mug(size=0)


def test_the_schema_says_what_the_docstring_says() -> None:
    schema = TypeAdapter(Cup).json_schema()
    assert schema["description"] == "A cup."
    assert schema["properties"]["size"]["description"] == "in decilitres."
    assert "pour" not in schema["properties"]
