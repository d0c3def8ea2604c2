"""Checkpoints: one safetensors file for a nested state, never unpickled, never half written.

The metadata of the file have one entry, `sheafed`, a JSON document of `sha256`, `version` and
`tree`, the skeleton of `sheafed.checkpointing.state_tree`. The SHA-256 is that of the whole file
with zeros in its own place, so no byte can change, or be lost, without notice.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from sheafed.atomic_io import make_directory, write_atomically
from sheafed.checkpointing.state_tree import flatten, unflatten
from sheafed.errors import CheckpointError

VERSION = 1
ENTRY = "sheafed"  # one entry only: safetensors writes several in an order that changes
_BEFORE_DIGEST = rb"{\"sha256\":\""  # as it stands in the file, a document quoted within JSON
_NO_DIGEST = b"0" * 64


def save_checkpoint(path: str | Path, tree: Mapping[str, object]) -> None:
    """Write a nested state (see `flatten`) to `path`, atomically; equal states give equal bytes.

    A crash at any moment leaves the earlier checkpoint or this one. The file, which may hold secret
    maps, is for this user alone, and so is its directory if that is made.
    """
    path = Path(path)
    content = _seal(_encode(tree))
    try:
        make_directory(path.parent, private=True)
        write_atomically(path, content, private=True)
    except OSError as problem:
        raise CheckpointError(
            f"cannot write the checkpoint {path}, {len(content)} bytes ({problem.strerror}); an "
            "earlier one is still whole; make room, or give a path that can be written"
        ) from problem


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the state that `save_checkpoint` wrote to `path`, after checking every byte."""
    path = Path(path)
    content = _read(path)
    document = _read_document(path, content)
    if document["version"] != VERSION:
        raise CheckpointError(
            f"{path} is a checkpoint of version {document['version']}, this sheafed reads version "
            f"{VERSION}; resume with the release that wrote it, or start anew"
        )
    at = content.find(_BEFORE_DIGEST) + len(_BEFORE_DIGEST)
    if content[at : at + len(_NO_DIGEST)] != _digest(content, at):
        raise CheckpointError(
            f"{path} is damaged: its {len(content)} bytes do not have the SHA-256 it was written "
            "with; resume from another checkpoint, or start anew"
        )
    try:
        tree = unflatten(safetensors.torch.load(content), document["tree"])
    except (
        safetensors.SafetensorError,
        LookupError,
        ValueError,
        TypeError,
        RuntimeError,
    ) as problem:
        raise CheckpointError(_foreign(path, problem)) from problem
    if not isinstance(tree, dict):
        raise CheckpointError(_foreign(path, f"it holds a {type(tree).__name__}, not a dict"))
    return tree


def _encode(tree: Mapping[str, object]) -> bytes:
    tensors, skeleton = flatten(dict(tree))
    document = {"sha256": _NO_DIGEST.decode(), "version": VERSION, "tree": skeleton}
    metadata = {ENTRY: json.dumps(document, separators=(",", ":"), allow_nan=False)}
    content: bytes = safetensors.torch.save(_unshare(tensors), metadata)
    return content


def _unshare(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy every tensor but the first of each storage: safetensors refuses tied weights."""
    storages: set[int] = set()
    unshared = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        unshared[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    return unshared


def _seal(content: bytes) -> bytes:
    at = content.index(_BEFORE_DIGEST + _NO_DIGEST) + len(_BEFORE_DIGEST)
    sealed = _BEFORE_DIGEST + _digest(content, at)
    return content.replace(_BEFORE_DIGEST + _NO_DIGEST, sealed, 1)


def _digest(content: bytes, at: int) -> bytes:
    """Return the SHA-256, in hexadecimal, of the content with zeros for the one that is at `at`."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:at])
    digest.update(_NO_DIGEST)
    digest.update(view[at + len(_NO_DIGEST) :])
    return digest.hexdigest().encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise CheckpointError(
            f"cannot read the checkpoint {path} ({problem.strerror}); give one that "
            "a training wrote, or start anew"
        ) from problem


def _read_document(path: Path, content: bytes) -> dict[str, Any]:
    """Return the document in the header: 8 bytes of its length, then JSON."""
    try:
        size = int.from_bytes(content[:8], "little")
        document = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][ENTRY])
        return {name: document[name] for name in ("sha256", "version", "tree")}
    except (LookupError, TypeError, ValueError, RecursionError) as problem:
        raise CheckpointError(_foreign(path, problem)) from problem


def _foreign(path: Path, problem: object) -> str:
    reason = str(problem).partition("\n")[0]  # torch adds its stack
    return (
        f"{path} is no checkpoint of sheafed, or a damaged one ({reason:.500}); give one that a "
        "training wrote, load or resume another run, or start anew"
    )
