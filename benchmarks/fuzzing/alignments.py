"""The reader of alignments: two files, here one after the other."""

import hashlib
import re
from pathlib import Path

import torch

import sheafed
from fuzzing.targets import Target, WronglyAcceptedError
from sheafed.alignment.files import DOCUMENT, TENSORS
from sheafed.errors import AlignmentFormatError

SEPARATOR = b"\0\0--\0\0"


def target(directory: Path) -> Target:
    folder, again = directory / "alignment", directory / "alignment-again"
    folder.mkdir()

    def check(data: bytes) -> bool:
        document, _, tensors = data.partition(SEPARATOR)
        (folder / DOCUMENT).write_bytes(document)
        (folder / TENSORS).write_bytes(tensors)
        try:
            alignment = sheafed.Alignment.load(folder)
        except AlignmentFormatError:
            return False
        alignment.save(again)
        written = _content(again)
        sheafed.Alignment.load(again).save(again)
        if _content(again) != written:
            raise WronglyAcceptedError("it is another one when it is written and read again")
        return True

    return Target("alignments", _seeds(directory / "alignment-seed"), check, _repair)


def _seeds(directory: Path) -> list[bytes]:
    draw = torch.Generator().manual_seed(0)
    common = torch.randn(40, 3, generator=draw)
    latents = {
        name: common @ torch.randn(3, d, generator=draw) + 0.1 * torch.randn(40, d, generator=draw)
        for name, d in (("ada", 3), ("bo", 4), ("cy", 3))
    }
    seeds = []
    for names in (("ada", "bo"), ("ada", "bo", "cy")):
        sheafed.align({name: latents[name] for name in names}).save(directory)
        seeds.append(_content(directory))
    return seeds


def _content(directory: Path) -> bytes:
    return (directory / DOCUMENT).read_bytes() + SEPARATOR + (directory / TENSORS).read_bytes()


def _repair(data: bytes) -> bytes:
    document, separator, tensors = data.partition(SEPARATOR)
    digest = hashlib.sha256(tensors).hexdigest().encode()
    return re.sub(rb'"sha256": ?"[^"]*"', b'"sha256": "' + digest + b'"', document) + (
        separator + tensors
    )
