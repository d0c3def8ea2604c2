"""An alignment on disk: `alignment.json` beside `alignment.safetensors`, never a pickle."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import safetensors
import safetensors.torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from sheafed.alignment.affine_map import AffineMap
from sheafed.alignment.fingerprint import Fingerprint
from sheafed.alignment.report import EdgeFit, PairFit
from sheafed.alignment.selection import Goal
from sheafed.atomic_io import write_atomically
from sheafed.errors import AlignmentFormatError, DtypeError, InputError, ShapeError
from sheafed.graphs import Edge
from sheafed.linalg.checks import check_finite
from sheafed.linalg.whitening import Whitening
from sheafed.sheaf.network_sheaf import NetworkSheaf

VERSION = 5
DOCUMENT, TENSORS = "alignment.json", "alignment.safetensors"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    version: int
    sha256: str
    dims: dict[str, int]
    goal: Goal
    edges: list[EdgeFit]
    pairs: list[PairFit]
    energies: dict[str, float]
    structured: dict[str, bool]


@dataclass(frozen=True)
class AlignmentContent:
    """What an alignment consists of, and what its files hold."""

    sheaf: NetworkSheaf
    whitenings: Mapping[str, Whitening]
    fits: tuple[EdgeFit, ...]
    maps: Mapping[tuple[str, str], AffineMap]
    """For each directed pair of neighbours, sender and receiver."""
    pairs: tuple[PairFit, ...]
    goal: Goal
    fingerprints: Mapping[str, Fingerprint]


def save(directory: str | Path, content: AlignmentContent) -> Path:
    """Write both files, each atomically, the document last."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, whitening in content.whitenings.items():
        tensors[f"mean/{name}"] = whitening.mean
        tensors[f"whitener/{name}"] = whitening.whitener.contiguous()
        tensors[f"colourer/{name}"] = whitening.colourer.contiguous().clone()
        known = content.fingerprints[name]
        tensors[f"fingerprint/mean/{name}"] = known.mean.clone()
        tensors[f"fingerprint/basis/{name}"] = known.basis.float().contiguous()
        tensors[f"fingerprint/variances/{name}"] = known.variances.clone()
    for number, fit in enumerate(content.fits):
        isometry = content.sheaf.maps[Edge(fit.head, fit.tail)]
        tensors[f"isometry/{number}"] = isometry.contiguous()
    for number, pair in enumerate(content.pairs):
        found = content.maps[pair.sender, pair.receiver]
        # Maps of one agent share its mean, and a file holds no tensor twice.
        tensors[f"weight/{number}"] = found.weight.contiguous()
        tensors[f"centre/{number}"] = found.centre.clone()
        tensors[f"value/{number}"] = found.value.clone()
    payload = safetensors.torch.save(tensors)
    document = _Document(
        version=VERSION,
        sha256=hashlib.sha256(payload).hexdigest(),
        dims=dict(content.sheaf.dims),
        goal=content.goal,
        edges=list(content.fits),
        pairs=list(content.pairs),
        energies={name: known.energy for name, known in content.fingerprints.items()},
        structured={name: known.structured for name, known in content.fingerprints.items()},
    )
    write_atomically(directory / TENSORS, payload)
    write_atomically(directory / DOCUMENT, document.model_dump_json(indent=2).encode())
    return directory


def load(directory: str | Path) -> AlignmentContent:
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
        _check_tensors(tensors, document.dims)
        whitenings = {
            name: Whitening(
                tensors[f"mean/{name}"], tensors[f"whitener/{name}"], tensors[f"colourer/{name}"]
            )
            for name in document.dims
        }
        isometries = {
            Edge(fit.head, fit.tail): tensors[f"isometry/{number}"]
            for number, fit in enumerate(document.edges)
        }
        sheaf = NetworkSheaf(nx.Graph(list(isometries)), document.dims, isometries)
        maps = {
            (pair.sender, pair.receiver): _affine(tensors, number, pair, document.dims)
            for number, pair in enumerate(document.pairs)
        }
        fingerprints = {
            name: Fingerprint(
                tensors[f"fingerprint/mean/{name}"],
                tensors[f"fingerprint/basis/{name}"].double(),
                tensors[f"fingerprint/variances/{name}"],
                document.energies[name],
                document.structured[name],
            )
            for name in document.dims
        }
    except (safetensors.SafetensorError, KeyError, InputError, TypeError) as problem:
        reason = str(problem).partition("\n")[0]  # torch adds its stack to a size that is too large
        raise AlignmentFormatError(f"{directory} holds no usable alignment: {reason}") from problem
    return AlignmentContent(
        sheaf,
        whitenings,
        tuple(document.edges),
        maps,
        tuple(document.pairs),
        document.goal,
        fingerprints,
    )


def _check_tensors(tensors: Mapping[str, Tensor], dims: Mapping[str, int]) -> None:
    """Raise unless all are finite numbers, and those of single agents have their sizes."""
    for key, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise DtypeError(f"{key} must be floating-point, got {tensor.dtype}")
        check_finite(key, tensor)
    for name, d in dims.items():
        rank = tensors[f"fingerprint/basis/{name}"].shape[-1:]
        expected = {"mean": (d,), "whitener": (d, d), "colourer": (d, d), "fingerprint/mean": (d,)}
        expected |= {"fingerprint/basis": (d, *rank), "fingerprint/variances": (*rank,)}
        for part, shape in expected.items():
            found = tuple(tensors[f"{part}/{name}"].shape)
            if found != shape:
                raise ShapeError(f"{part} of {name!r} must have the shape {shape}, got {found}")


def _affine(
    tensors: Mapping[str, Tensor], number: int, pair: PairFit, dims: Mapping[str, int]
) -> AffineMap:
    found = AffineMap(*(tensors[f"{part}/{number}"] for part in ("weight", "centre", "value")))
    expected = (dims[pair.receiver], dims[pair.sender])
    if found.weight.shape != expected:
        raise ShapeError(
            f"the map from {pair.sender!r} to {pair.receiver!r} must be {expected}, got "
            f"{tuple(found.weight.shape)}"
        )
    return found


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
