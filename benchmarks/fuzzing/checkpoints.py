"""The reader of checkpoints."""

from collections import Counter, OrderedDict
from pathlib import Path

import torch

from fuzzing.targets import Target, WronglyAcceptedError
from sheafed.checkpointing import checkpoint
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.errors import CheckpointError

TREES = (
    {"weights": OrderedDict(w=torch.linspace(0, 1, 12).view(3, 4), b=torch.zeros(4)), "rounds": 7},
    {
        "state": {0: {"step": torch.tensor(3.0)}, 1: [1.5, float("nan"), None, "ö", (True, 2**70)]},
        "counts": Counter(a=2),
        "complex": torch.ones(2, dtype=torch.complex64),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
    },
)


def target(directory: Path) -> Target:
    path = directory / "checkpoint.safetensors"
    again = directory / "again.safetensors"

    def check(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            tree = load_checkpoint(path)
        except CheckpointError:
            return False
        save_checkpoint(again, tree)
        written = again.read_bytes()
        save_checkpoint(again, load_checkpoint(again))
        if again.read_bytes() != written:
            raise WronglyAcceptedError("its state is another one when it is written and read again")
        return True

    seeds = []
    for tree in TREES:
        save_checkpoint(path, tree)
        seeds.append(path.read_bytes())
    return Target("checkpoints", seeds, check, _repair)


def _repair(data: bytes) -> bytes:
    """Give it the length of its header and the SHA-256 that it would have been written with."""
    end = data.rfind(b"}") + 1
    if end > 8:
        padded = data[8:end] + b" " * (-end % 8)
        data = len(padded).to_bytes(8, "little") + padded + data[end:].lstrip(b" ")
    at = data.find(checkpoint._BEFORE_DIGEST) + len(checkpoint._BEFORE_DIGEST)
    digest = checkpoint._digest(data, at)
    return data[:at] + digest + data[at + len(digest) :]
