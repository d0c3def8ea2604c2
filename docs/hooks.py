"""What MkDocs adds to the Markdown of this folder when it builds the site (see mkdocs.yml).

- A page per public package, rendered from docstrings; tables of commands and of config keys.
- Files outside this folder that pages link to: examples, CONTRIBUTING.md, CHANGELOG.md.
- Mathematics as MathML, so that pages need no script and no network.
"""

from __future__ import annotations

import html
import importlib
import inspect
import posixpath
import re
from pathlib import Path
from typing import Any

import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import sheafed
from sheafed.cli import app

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "agents alignment channels datasets evaluation graphs linalg methods models pilots privacy "
    "report sheaf training transport"
).split()
MOVED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    pages = [{f"sheafed.{name}": f"reference/api/{name}.md"} for name in PACKAGES]
    config.nav[-1]["Reference"].append({"API": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in PACKAGES:
        text = f"# sheafed.{name}\n\n::: sheafed.{name}\n"
        files.append(File.generated(config, f"reference/api/{name}.md", content=text))
    for source, target in MOVED.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    for name, build in GENERATED.items():
        markdown = markdown.replace(f"<!-- {name} -->", build())
    here = {site: source for source, site in MOVED.items()}.get(
        page.file.src_uri, f"docs/{page.file.src_uri}"
    )

    def follow(match: re.Match[str]) -> str:
        """Turn a link between files of the repository into one between files of the site."""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        if target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif target.startswith("examples/") or target in MOVED:
            target = MOVED.get(target, target)
        else:
            return match[1]
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(follow, markdown)


def on_page_content(html_text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def to_mathml(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        return convert(html.unescape(match[3]), display=display)

    return FORMULA.sub(to_mathml, html_text)


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", r"\|")


def _table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def python_names() -> str:
    """List what `import sheafed` offers, and the public packages."""
    homes = {
        name: package
        for package in reversed(PACKAGES)
        for name in getattr(importlib.import_module(f"sheafed.{package}"), "__all__", ())
    }
    rows = []
    for name in sheafed.__all__:
        home = homes.get(name)
        target = f"api/{home}.md#sheafed.{home}.{name}"
        shown = f"[`sheafed.{name}`]({target})" if home else f"`sheafed.{name}`"
        rows.append([shown, _first_line(getattr(sheafed, name))])
    packages = [
        [
            f"[`sheafed.{name}`](api/{name}.md)",
            _first_line(importlib.import_module(f"sheafed.{name}")),
        ]
        for name in PACKAGES
    ]
    return _table(["name", ""], rows) + "\n" + _table(["package", ""], packages)


def commands() -> str:
    """Describe every command of the command line, with its arguments and options."""
    parts: list[str] = []

    def describe(command: Any, path: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            describe(inner, f"{path} {name}")
        if hasattr(command, "commands"):
            return
        parts.append(f"## {path}\n\n{inspect.cleandoc(command.help or '')}\n")
        rows = []
        for parameter in command.params:
            if parameter.name == "help":
                continue
            shown = ", ".join([*parameter.opts, *parameter.secondary_opts])
            if parameter.param_type_name == "argument":
                shown = shown.upper()
            default = "" if parameter.default in (None, False) else f"`{parameter.default}`"
            text = (parameter.help or "").replace("|", r"\|")
            rows.append([f"`{shown}`", text, "required" if parameter.required else default])
        parts.append(_table(["argument or option", "", "default"], rows))

    describe(typer.main.get_command(app), "sheafed")
    return "\n".join(parts)


def config_keys() -> str:
    return ""


GENERATED = {"python names": python_names, "commands": commands, "config keys": config_keys}
