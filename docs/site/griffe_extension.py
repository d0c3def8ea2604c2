"""For Griffe: doctests are code, and classes under `@options` are dataclasses."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *$).+)*", re.MULTILINE)


class SheafedExtension(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(_fence, obj.docstring.value)

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            called = decorator.value
            if decorator.callable_path == "sheafed.options.options":
                name = griffe.ExprName("dataclasses.dataclass")
                if isinstance(called, griffe.ExprCall):
                    called.function = name
                else:
                    decorator.value = name


def _fence(block: re.Match[str]) -> str:
    return f"{block[1]}```pycon\n{block[0]}\n{block[1]}```"
