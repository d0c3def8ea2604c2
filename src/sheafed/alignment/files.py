"""An alignment on disk: `alignment.json` beside `alignment.safetensors`, never a pickle."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import networkx as nx
import safetensors
import safetensors.torch
from pydantic import BaseModel, ConfigDict, ValidationError

from sheafed.alignment.report import EdgeFit
from sheafed.atomic_io import write_atomically
from sheafed.errors import AlignmentFormatError, InputError
from sheafed.graphs import Edge
from sheafed.linalg.whitening import Whitening
from sheafed.sheaf.network_sheaf import NetworkSheaf

VERSION = 2
DOCUMENT, TENSORS = "alignment.json", "alignment.safetensors"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    version: int
    sha256: str
    dims: dict[str, int]
    edges: list[EdgeFit]


def save(
    directory: str | Path,
    sheaf: NetworkSheaf,
    whitenings: Mapping[str, Whitening],
    fits: Sequence[EdgeFit],
) -> Path:
    """Write both files, each atomically, the document last."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, whitening in whitenings.items():
        tensors[f"mean/{name}"] = whitening.mean
        tensors[f"whitener/{name}"] = whitening.whitener.contiguous()
        tensors[f"colourer/{name}"] = whitening.colourer.contiguous().clone()
    for number, fit in enumerate(fits):
        tensors[f"map/{number}"] = sheaf.maps[Edge(fit.head, fit.tail)].contiguous()
    payload = safetensors.torch.save(tensors)
    document = _Document(
        version=VERSION,
        sha256=hashlib.sha256(payload).hexdigest(),
        dims=dict(sheaf.dims),
        edges=list(fits),
    )
    write_atomically(directory / TENSORS, payload)
    write_atomically(directory / DOCUMENT, document.model_dump_json(indent=2).encode())
    return directory


def load(
    directory: str | Path,
) -> tuple[NetworkSheaf, dict[str, Whitening], tuple[EdgeFit, ...]]:
    """Read and check both files."""
    directory = Path(directory)
    document = _read_document(directory)
    payload = _read(directory / TENSORS)
    if hashlib.sha256(payload).hexdigest() != document.sha256:
        raise AlignmentFormatError(
            f"{directory / TENSORS} is not the file that {DOCUMENT} describes: it was changed, or "
            "a save was interrupted; save the alignment again"
        )
    try:
        tensors = safetensors.torch.load(payload)
        whitenings = {
            name: Whitening(
                tensors[f"mean/{name}"], tensors[f"whitener/{name}"], tensors[f"colourer/{name}"]
            )
            for name in document.dims
        }
        maps = {
            Edge(fit.head, fit.tail): tensors[f"map/{number}"]
            for number, fit in enumerate(document.edges)
        }
        sheaf = NetworkSheaf(nx.Graph(list(maps)), document.dims, maps)
    except (safetensors.SafetensorError, KeyError, InputError) as problem:
        raise AlignmentFormatError(f"{directory} holds no usable alignment: {problem}") from problem
    return sheaf, whitenings, tuple(document.edges)


def _read_document(directory: Path) -> _Document:
    try:
        document = _Document.model_validate_json(_read(directory / DOCUMENT))
    except ValidationError as problem:
        raise AlignmentFormatError(f"{directory / DOCUMENT} cannot be read: {problem}") from problem
    if document.version != VERSION:
        raise AlignmentFormatError(
            f"{directory / DOCUMENT} is of version {document.version}, this sheafed reads "
            f"{VERSION}; align again, or use the release that wrote it"
        )
    return document


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise AlignmentFormatError(
            f"cannot read {path} ({problem.strerror}); give the directory that "
            "`sheafed align --out` wrote"
        ) from problem
