"""What MkDocs adds to the Markdown of `docs` when it builds the site (see mkdocs.yml).

- A page per public package, rendered from docstrings; tables of commands and of config keys.
- Files outside `docs` that pages link to: examples, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md.
- Mathematics as MathML, so that pages need no script and no network.
"""

from __future__ import annotations

import html
import importlib
import inspect
import posixpath
import re
import unicodedata
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from config_reference import config_keys, markdown_table
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import sheafed
from sheafed.cli import app

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "agents",
    "agents.objectives",
    "alignment",
    "channels",
    "config",
    "datasets",
    "datasets.modalities",
    "datasets.partitions",
    "errors",
    "evaluation",
    "graphs",
    "linalg",
    "methods",
    "models",
    "models.adapters",
    "network",
    "options",
    "pilots",
    "privacy",
    "report",
    "sheaf",
    "pretrained",
    "training",
    "transport",
]
MOVED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
ALPHABET = re.compile(r"\\math(cal|bb)\s*(?:\{([A-Z]+)\}|([A-Z]))")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    pages = [{f"sheafed.{name}": f"reference/api/{name}.md"} for name in PACKAGES]
    config.nav[-1]["Reference"].append({"API": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in PACKAGES:
        files.append(File.generated(config, f"reference/api/{name}.md", content=api_page(name)))
    for source, target in MOVED.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for path in sorted(p for p in (ROOT / "examples").iterdir() if p.suffix in {".py", ".ipynb"}):
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def api_page(package: str) -> str:
    """Render what a package exports.

    Each name by where it is defined: `sheafed.linalg.procrustes` is a function, but static analysis
    takes it for the module of that name.
    """
    module = importlib.import_module(f"sheafed.{package}")
    parts = [f"# sheafed.{package}\n"]
    if not hasattr(module, "__all__"):
        return "\n".join([*parts, f"::: sheafed.{package}\n"])
    parts.append(f"{inspect.getdoc(module)}\n")
    for name in sorted(module.__all__, key=str.lower):
        if f"{package}.{name}" in PACKAGES:
            continue  # it has a page of its own
        parts.append(f"::: {_home(module, name)}\n    options:\n      show_root_heading: true\n")
    return "\n".join(parts)


def _home(module: ModuleType, name: str) -> str:
    """Return the full name by which something is defined; constants are known by the package's."""
    thing = getattr(module, name)
    if inspect.ismodule(thing):
        return thing.__name__
    has_home = inspect.isclass(thing) or inspect.isroutine(thing)
    return f"{thing.__module__ if has_home else module.__name__}.{name}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    for name, build in GENERATED.items():
        if (marker := f"<!-- {name} -->") in markdown:
            markdown = markdown.replace(marker, build())
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
        return convert(ALPHABET.sub(_letter, html.unescape(match[3])), display=display)

    return FORMULA.sub(to_mathml, html_text)


def _letter(match: re.Match[str]) -> str:
    r"""Replace `\mathcal F` by the character itself: browsers ignore MathML's `mathvariant`."""
    style = {"cal": "SCRIPT", "bb": "DOUBLE-STRUCK"}[match[1]]
    letters = []
    for letter in match[2] or match[3]:
        name = f"{style} CAPITAL {letter}"
        try:
            letters.append(unicodedata.lookup(name))  # the oldest ones have no other name
        except KeyError:
            letters.append(unicodedata.lookup(f"MATHEMATICAL {name}"))
    return "{" + " ".join(letters) + "}"


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", r"\|")


def python_names() -> str:
    """List what `import sheafed` offers, and the public packages."""
    modules = {name: importlib.import_module(f"sheafed.{name}") for name in PACKAGES}
    rows = []
    for name in sheafed.__all__:
        home = next(p for p, module in modules.items() if name in getattr(module, "__all__", ()))
        target = f"api/{home}.md#{_home(modules[home], name)}"
        rows.append([f"[`sheafed.{name}`]({target})", _first_line(getattr(sheafed, name))])
    packages = [
        [f"[`sheafed.{name}`](api/{name}.md)", _first_line(module)]
        for name, module in modules.items()
    ]
    return markdown_table(["name", ""], rows) + "\n" + markdown_table(["package", ""], packages)


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
        parts.append(markdown_table(["argument or option", "", "default"], rows))

    describe(typer.main.get_command(app), "sheafed")
    return "\n".join(parts)


GENERATED = {"python names": python_names, "commands": commands, "config keys": config_keys}
