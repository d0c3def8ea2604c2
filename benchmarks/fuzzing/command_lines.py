"""The command line: words in any order and files of any content end in one of its exit codes.

What it reads is broken, so that no case trains a network or opens a port; what `align`, `send` and
`certs` read is not. Words stay within the working directory.
"""

import contextlib
import io
import os
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import typer

from fuzzing.mutations import mutate
from fuzzing.targets import Target, WronglyAcceptedError
from sheafed.cli import app, main

SEPARATOR = b"\0"
CODES = (0, 1, 2)
TEMPLATES = (
    "align a=a.npy b=b.npy --out aligned --edge a:b --maps procrustes",
    "align a=a.npy b=vast.npy --out aligned --shrinkage 0.5",
    "send a.npy --alignment alignment --from a --to b --out sent.npy --no-check",
    "send text.npy --alignment alignment --from a --to b --out sent.npy",
    "certs certificates ada bo --host 10.0.0.1 --days 3",
    "certs certificates ada --renew",
    "new mine",
    "run broken.toml --out out --set training.epochs=1 --seed 3",
    "agent broken.toml --name ada --cert a.pem --key a.key --ca c.pem --out out --deadline 3",
    "relay broken.toml --listen tls/127.0.0.1:7447 --cert a.pem --key a.key --ca c.pem",
    "network up broken.toml --out out",
    "network status out",
    "sweep broken.toml --out out",
    "evaluate broken --split test --oracle",
    "export broken --from a --to b --out x.onnx",
    "report broken --out report.html",
    "data list",
    "encoders list",
)
HARMFUL = ("--log",)
"""Options that change this process: standard output goes to a file."""


def target(directory: Path) -> Target:
    folder = directory / "one" / "two" / "three"
    folder.mkdir(parents=True)
    with _inside(folder):
        _write_files()
        _run(TEMPLATES[0].replace("aligned", "alignment").split())
        words = [*_options(), *(path.name for path in Path().iterdir())]

    def check(data: bytes) -> bool:
        found = [os.fsdecode(word).replace("/", "_") for word in data.split(SEPARATOR)]
        # Not what ends a C string, nor a directory above.
        arguments = [word for word in found if word not in HARMFUL and ".." not in word]
        with _inside(folder):
            code = _run(arguments)
        if code not in CODES:
            raise WronglyAcceptedError(f"{arguments} ended with {code!r}")
        return code == 0

    def damage(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
        return _damage(data, draw, [word.encode() for word in words])

    seeds = [SEPARATOR.join(text.encode().split()) for text in TEMPLATES]
    return Target("command-lines", seeds, check, damage=damage)


def _damage(data: bytes, draw: random.Random, words: Sequence[bytes]) -> bytes:
    """Drop, repeat, exchange, insert and damage words."""
    found = data.split(SEPARATOR)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(found) + 1)
        what = draw.randrange(5)
        if what == 0:
            found[at : at + 1] = []
        elif what == 1:
            found[at:at] = found[at : at + 2]
        elif what == 2:
            found[at:at] = [draw.choice(list(words))]
        elif what == 3:
            found[at : at + 1] = [draw.choice(list(words))]
        else:
            word = mutate(b"".join(found[at : at + 1]), draw, words)[:4000]
            found[at : at + 1] = [word.replace(SEPARATOR, b"")]
    return SEPARATOR.join(found)


def _run(arguments: Sequence[str]) -> object:
    """Call the command line in this process; return its exit code."""
    before, output = sys.argv, io.StringIO()
    sys.argv = ["sheafed", *arguments]
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            main()
    except SystemExit as ended:
        return ended.code if ended.code is not None else 0
    finally:
        sys.argv = before
    return 0


def _write_files() -> None:
    draw = np.random.default_rng(0)
    common = draw.normal(size=(40, 3))
    for name, d in (("a", 3), ("b", 4)):
        np.save(f"{name}.npy", common @ draw.normal(size=(3, d)))
    whole = Path("a.npy").read_bytes()
    Path("vast.npy").write_bytes(whole.replace(b"(40, 3)", b"(4000000000000, 3)"))
    Path("short.npy").write_bytes(whole[:-7])
    Path("text.npy").write_text("no array", encoding="utf-8")
    Path("broken.toml").write_text("unknown = 1\n", encoding="utf-8")
    Path("broken").mkdir()
    for name in ("config.json", "metrics.jsonl", "summary.json", "checkpoint.safetensors"):
        Path("broken", name).write_text('{"rounds": [', encoding="utf-8")


def _options() -> list[str]:
    """Return all options of all commands."""
    found, commands = set(), [typer.main.get_command(app)]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        found |= {word for parameter in command.params for word in parameter.opts}
    return sorted(word for word in found if word.startswith("--"))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
