"""Options: what a user chooses, declared, typed, defaulted, checked and documented in one place.

A class under `@options` is a frozen dataclass in Python and a table in a TOML file. Its fields are
the keys, its types are checked in both, and the `Args` of its docstring are the reference. A field
holds a number, a string, a list, or options again; with `OneOf`, one of several kinds of them.

>>> @options
... class Link:
...     rate: Positive = 1.0
>>> Link(rate=2)
Link(rate=2.0)
>>> Link(rate="fast")
Traceback (most recent call last):
sheafed.errors.InputError: Link: rate must be a number, got 'fast'
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform, overload

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from sheafed.errors import InputError

# Strict: "3" is not taken for a number, nor True for 1.
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Real = Annotated[float, Field(allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Integer = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Width = Annotated[int, Field(ge=1, le=2**20, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
T = TypeVar("T")
PythonOnly = Annotated[T, Field(exclude=True), SkipJsonSchema()]
"""A field for code, which has no key in a file."""

LONGEST, MOST_SENTENCES = 200, 10
"""Characters of a wrong value, and wrong values, that an error shows."""
TAGS = ("name", "kind")
"""The keys by which a table says which of several kinds of options it holds."""
PLAIN, INSTANCE = "plain", "instance"
UNKNOWN_KEY, CHOICE = "unknown_key", "choice"
SHOULD = "Input should be "
ARGS = "\nArgs:\n"
INSTANCE_OF = r"a (?:valid )?dictionary or (?:an )?instance of (\w+)"
WORDING = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    "a valid number": "a number",
    "a valid integer": "an integer",
    "a valid boolean": "true or false",
    INSTANCE_OF: "a table",
}
"""From pydantic's words to ours, as regular expressions."""

_BEFORE: Any = model_validator(mode="before")
C = TypeVar("C", bound=type)


@overload
def options(cls: C, /) -> C: ...
@overload
def options(*, kw_only: bool) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def options(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class a frozen dataclass whose fields are checked, in Python and read from a file.

    A value that cannot be used is an `InputError`. What several fields must have in common is
    checked in `__post_init__`.
    """

    def decorate(cls: Any) -> Any:
        cls.reject_unknown_keys = _BEFORE(classmethod(_reject_unknown_keys))
        config = ConfigDict(extra="forbid", json_schema_extra=_document)
        made: Any = checked_dataclass(frozen=True, kw_only=kw_only, config=config)(cls)
        signature, checked_init = inspect.signature(made), made.__init__

        @wraps(checked_init)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as problem:
                names = ", ".join(option_names(made))
                raise TypeError(f"{made.__name__}: {problem}; options: {names}") from None
            try:
                checked_init(self, **given)
            except ValidationError as problem:
                raise _input_error(made.__name__, problem, given) from None

        made.__init__ = init
        return made

    return decorate if cls is None else decorate(cls)


class OneOf:
    """Within `Annotated`: the value is one of these alternatives.

    - A class of options: an instance of it or a table. Several differ in their literal
      `name` or `kind`, which alone stands for the table with its defaults.
    - A protocol or another class: an instance, which only code can give.
    - One plain type for everything else, e.g. `Positive`.

    Args:
        alternatives: as above.
        default: the class of options of a table that does not say which it is.
    """

    def __init__(self, *alternatives: Any, default: Any = None) -> None:
        self.tables: list[Any] = [a for a in alternatives if is_dataclass(a)]
        self.classes = tuple(a for a in alternatives if isinstance(a, type) and not is_dataclass(a))
        plain = [a for a in alternatives if not isinstance(a, type)]
        self.plain = plain[0] if plain else None
        self.default = default or (self.tables[0] if len(self.tables) == 1 else None)
        self.tags = {tag_of(table): table for table in self.tables}
        self.key = tag_key(self.tables[0]) if self.tables else None

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {tag: handler.generate_schema(table) for tag, table in self.tags.items()}
        if self.plain is not None:
            choices[PLAIN] = handler.generate_schema(self.plain)
        if self.classes:
            choices[INSTANCE] = core_schema.is_instance_schema(self.classes)
        union = core_schema.tagged_union_schema(
            choices,
            discriminator=self._choose,
            custom_error_type=CHOICE,
            custom_error_message=SHOULD + "{expected}",
            custom_error_context={
                "key": self.key or "",
                "tags": _listed(self.tags) if self.tags else "",
                "expected": self._expected(),
                "in_python": " or ".join(f"{table.__name__}()" for table in self.tables),
            },
        )
        return core_schema.no_info_before_validator_function(self._as_table, union)

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Leave out what only code can give."""
        choices = dict(schema["schema"]["choices"])
        choices.pop(INSTANCE, None)
        return handler(core_schema.union_schema(list(choices.values())))

    def _as_table(self, value: Any) -> Any:
        return {self.key: value} if isinstance(value, str) and value in self.tags else value

    def _choose(self, value: Any) -> str | None:
        if isinstance(value, Mapping) and self.tables:
            tag = value.get(self.key, self.default and tag_of(self.default))
            return tag if isinstance(tag, str) and tag in self.tags else None
        for tag, table in self.tags.items():
            if isinstance(value, table):
                return tag
        if isinstance(value, self.classes):
            return INSTANCE
        return None if self.plain is None else PLAIN

    def _expected(self) -> str:
        if self.key is None:
            kinds = [f"a table of {table.__name__}'s options" for table in self.tables]
        else:
            kinds = [_listed(self.tags), f"a table with that {self.key}"]
        return " or ".join([*kinds, *(f"a {c.__name__}" for c in self.classes)])


def tag_key(table: Any) -> str | None:
    """Return the key by which a table says that it holds these options, if it has one."""
    return next((f.name for f in fields(table) if f.name in TAGS), None)


def tag_of(table: Any) -> str:
    """Return the name or kind of a class of options, or of an instance."""
    return next((str(f.default) for f in fields(table) if f.name in TAGS), "table")


def option_names(table: Any) -> list[str]:
    """Return the options of a class or an instance, without its name or kind."""
    return [f.name for f in fields(table) if f.name not in TAGS]


def documented_options(cls: type) -> dict[str, str]:
    """Return the `Args` of the docstrings of a class and of those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, args = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition(ARGS)
        for name, text in re.findall(r"^    (\w+): (.*(?:\n        .*)*)", args, flags=re.M):
            found[name] = " ".join(text.split())
    return found


def _document(schema: JsonSchemaValue, cls: type) -> None:
    """Say in a JSON schema of each field what the docstring says of it."""
    text = inspect.cleandoc(cls.__doc__ or "").partition(ARGS)[0]
    schema["description"] = re.sub(r"^>>> (.+\n?)+", "", text, flags=re.M).strip()
    for name, text in documented_options(cls).items():
        if name in schema["properties"]:
            schema["properties"][name]["description"] = text


def explain(problem: ValidationError, given: Any, *, in_python: bool = False) -> str:
    """Say which keys of nested tables are wrong, what was given, and what can be.

    Args:
        problem: what pydantic found.
        given: the tables.
        in_python: they were written in Python, where options are instances of their classes.
    """
    sentences: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    for error in problem.errors():
        key, kind, context = _path(error["loc"], given), error["type"], error.get("ctx", {})
        if kind == UNKNOWN_KEY:
            unknown = ", ".join(_join(key, name) for name in context["unknown"])
            allowed = ", ".join(context["allowed"])
            sentences[unknown] = f"unknown key {unknown}; allowed keys: {allowed}"
        elif kind.startswith("missing"):
            name = _join(key, str(error["loc"][-1]))
            sentences[name] = f"{name} is missing"
        elif kind in ("too_long", "too_short"):
            most, least = context.get("max_length"), context.get("min_length")
            count = len(error["input"])
            if least is None or count < least:  # else items were left out, and are errors already
                bound = f"at most {most}" if least is None else f"at least {least}"
                sentences[key] = f"{key} must have {bound} items, got {count}"
        elif kind == CHOICE and isinstance(error["input"], Mapping):
            name, tags = _join(key, context["key"]), context["tags"]
            tag = error["input"].get(context["key"])
            sentences[name] = f"{name} must be {tags}, got {tag!r}"
        elif error["msg"].startswith(SHOULD):
            # The alternatives of a union are one sentence.
            message = error["msg"].removeprefix(SHOULD)
            if in_python:
                message = re.sub(INSTANCE_OF, r"options, e.g. \1()", message)
                message = re.sub(r"a table with that \w+", context.get("in_python", ""), message)
            expected.setdefault(key, []).append(_reword(message))
            choices, found = " or ".join(expected[key]), error["input"]
            sentences[key] = f"{key} must be {choices}, got {_shortened(found)}" + (
                f"; give an instance, {found.__name__}()" if isinstance(found, type) else ""
            )
        else:
            message = str(context.get("error", error["msg"]))
            sentences[key] = f"{key}: {message}" if key else message
    more = len(sentences) - MOST_SENTENCES
    shown = list(sentences.values())[:MOST_SENTENCES]
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def reject_unknown_keys(given: Any, allowed: Sequence[str]) -> Any:
    """Return a table as it is if it has no other keys than these."""
    if isinstance(given, Mapping) and (unknown := [key for key in given if key not in allowed]):
        context = {"unknown": unknown, "allowed": list(allowed)}
        raise PydanticCustomError(UNKNOWN_KEY, "unknown keys", context)
    return given


def _reject_unknown_keys(cls: Any, given: Any) -> Any:
    known = cls.__pydantic_fields__.items()
    return reject_unknown_keys(given, [name for name, info in known if not info.exclude])


def _input_error(name: str, problem: ValidationError, given: Mapping[str, Any]) -> InputError:
    first = problem.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError) and not first["loc"]:
        return cause
    return InputError(f"{name}: {explain(problem, given, in_python=True)}")


def _path(location: Sequence[int | str], given: Any) -> str:
    """Return the keys of a location, without the tags that a union adds between them."""
    keys = []
    for part in location:
        if isinstance(given, Mapping):
            inside = part in given
        else:
            inside = isinstance(given, list | tuple) and isinstance(part, int) and part < len(given)
        if inside:
            keys.append(str(part))
            given = given[part]
    return ".".join(keys)


def _reword(message: str) -> str:
    for theirs, ours in WORDING.items():
        message = re.sub(theirs, ours, message)
    return message


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _listed(words: Iterable[str]) -> str:
    *most, last = [repr(word) for word in words]
    return f"{', '.join(most)} or {last}" if most else last
