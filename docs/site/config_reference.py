"""The configuration reference: tables of keys, from the schema and the docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from sheafed.config.experiment import Experiment

SOURCE = Path(__file__).parents[2] / "src"


def markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


class FileSchema(GenerateJsonSchema):
    """The schema of a file: what only code can give is left open."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}


def config_keys() -> str:
    """Describe every table of a config, in the order in which they refer to each other."""
    schema = TypeAdapter(Experiment).json_schema(schema_generator=FileSchema)
    texts = _attribute_docstrings("sheafed.config")
    titles: dict[str, str] = {}
    sections: list[str] = []

    def tables(node: Any, path: str) -> Iterator[tuple[str, str]]:
        """Find the tables that a value may be: their definitions, and how a file writes them."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            tag = _tag(schema["$defs"][name])
            yield name, f"[{path}] {tag[0]} = {tag[1]}" if tag else f"[{path}]"
        inner = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
        if "items" in node:
            path = f"[{path}]"
            inner.append(node["items"])
        if isinstance(node.get("additionalProperties"), dict):
            path += ".NAME"
            inner.append(node["additionalProperties"])
        for part in inner:
            yield from tables(part, path)

    def describe(table: Any, path: str) -> None:
        text, arguments = _parse_docstring(table.get("description", ""))
        sections.append(text)
        arguments |= texts.get(table.get("title", ""), {})
        rows, deeper = [], []
        for key, value in table.get("properties", {}).items():
            kind = _type(value, schema["$defs"])
            if "const" in value or not kind:
                continue  # the tag, which the heading shows, or an option for code
            full = f"{path}.{key}".lstrip(".")
            for name, title in tables(value, full):
                if name not in titles:
                    titles[name] = title
                    deeper.append((name, full))
            given = value.get("default")
            default = "" if given is None or isinstance(given, dict) else f"`{json.dumps(given)}`"
            if key in table.get("required", ()):
                default = "required"
            meaning = " ".join(arguments.get(key, "").split()).replace("|", r"\|")
            rows.append([f"`{key}`", kind, default, meaning])
        if rows:
            sections.append(markdown_table(["key", "value", "default", ""], rows))
        for name, full in deeper:
            sections.append(f"## `{titles[name]}` {{ #{name} }}\n")
            describe(schema["$defs"][name], full)

    describe(schema, "")
    return "\n".join(sections)


def _attribute_docstrings(package: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes, by class and name."""
    found: dict[str, dict[str, str]] = {}
    for module in griffe.load(package, search_paths=[SOURCE]).modules.values():
        for name, cls in module.classes.items():
            if not cls.is_alias:
                documented = {n: a.docstring for n, a in cls.attributes.items() if a.docstring}
                found[name] = {n: docstring.value for n, docstring in documented.items()}
    return found


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its text, without examples, and its arguments."""
    sections = griffe.Docstring(inspect.cleandoc(text)).parse("google", warnings=False)
    prose = [str(part.value) for part in sections if part.kind is griffe.DocstringSectionKind.text]
    shown = re.sub(r"^>>> .*(?:\n.+)*", "", "\n\n".join(prose), flags=re.MULTILINE)
    arguments = {
        item.name: item.description
        for part in sections
        if part.kind is griffe.DocstringSectionKind.parameters
        for item in part.value
    }
    return f"{shown}\n", arguments


def _tag(definition: Any) -> tuple[str, str] | None:
    """Find the key whose value chooses this table among others."""
    for key, value in definition.get("properties", {}).items():
        if "const" in value:
            return key, json.dumps(value["const"])
    return None


def _type(node: Any, definitions: Any) -> str:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        tag = _tag(definitions[name])
        return f"[{f'`{tag[1]}`' if tag else 'table'}](#{name})"
    for union in ("anyOf", "oneOf", "allOf"):
        if union in node:
            parts = [_type(part, definitions) for part in node[union] if part.get("type") != "null"]
            return ", ".join(dict.fromkeys(part for part in parts if part))
    if "enum" in node or "const" in node:
        return ", ".join(
            f"`{json.dumps(value)}`" for value in node.get("enum", [node.get("const")])
        )
    kind = str(node.get("type", ""))
    if kind == "array":
        inner = node.get("items") or (node.get("prefixItems") or [{}])[0]
        return f"list of {_type(inner, definitions)}"
    bounds = (
        ("minimum", "≥"),
        ("exclusiveMinimum", ">"),
        ("maximum", "≤"),
        ("exclusiveMaximum", "<"),
    )
    limits = [f"{sign} {node[key]:g}" for key, sign in bounds if key in node]
    return " ".join([{"object": "table"}.get(kind, kind), ", ".join(limits)]).strip()
