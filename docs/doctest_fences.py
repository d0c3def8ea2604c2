"""A Griffe extension: doctests outside of `Examples:` sections are shown as code."""

import re
from typing import Any

import griffe

BLOCK = re.compile(r"^( *)>>> .*(?:\n(?! *$).+)*", re.MULTILINE)


class DoctestFences(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = BLOCK.sub(fence, obj.docstring.value)


def fence(block: re.Match[str]) -> str:
    return f"{block[1]}```pycon\n{block[0]}\n{block[1]}```"
