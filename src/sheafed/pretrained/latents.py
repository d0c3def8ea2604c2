"""The cache of latents: samples are encoded once, chunk by chunk."""

import io
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor

from sheafed.atomic_io import write_atomically
from sheafed.datasets.cache import data_directory, locked
from sheafed.errors import CorruptedDataError
from sheafed.pretrained.encoder_info import EncoderInfo

CHUNK = 256

Chunk = TypeVar("Chunk", bound=Sized)
Encode = Callable[[Chunk], NDArray[np.float32]]

logger = logging.getLogger("sheafed.pretrained")


def cached_latents(
    info: EncoderInfo,
    chunks: Sequence[Chunk],
    keys: Sequence[str],
    load: Callable[[], Encode[Chunk]],
    log: Callable[[str], None],
) -> Tensor:
    """Return the latents `(n, d)` of all chunks, float32, encoding those that the cache lacks.

    The cache keeps every chunk in a file of its own, so that an interrupted encoding goes on where
    it stopped, and samples that begin with samples encoded before are encoded from there on.

    Args:
        info: of the encoder.
        chunks: of samples, n in all.
        keys: of every chunk, the digest of all that its latents depend on.
        load: returns the function that encodes a chunk; called if the cache lacks one.
        log: told what is encoded; a terminal shows a progress bar besides.
    """
    paths = _paths(info, keys)
    if not are_cached(info, keys):  # a complete cache may be read-only
        with locked(_directory(info), log):
            missing = {p: c for p, c in zip(paths, chunks, strict=True) if not p.exists()}
            if missing:
                _encode(info.remote.name, missing, load, log)
    parts = [_read(path, len(chunk), info.dim) for path, chunk in zip(paths, chunks, strict=True)]
    return torch.from_numpy(np.concatenate(parts))


def are_cached(info: EncoderInfo, keys: Sequence[str]) -> bool:
    """Whether the cache has the latents of all chunks with these keys."""
    return all(path.exists() for path in _paths(info, keys))


def _directory(info: EncoderInfo) -> Path:
    return data_directory() / "latents" / info.remote.name


def _paths(info: EncoderInfo, keys: Sequence[str]) -> list[Path]:
    return [_directory(info) / f"{key}.npy" for key in keys]


def _encode(
    name: str,
    chunks: Mapping[Path, Chunk],
    load: Callable[[], Encode[Chunk]],
    log: Callable[[str], None],
) -> None:
    total = sum(map(len, chunks.values()))
    began = time.perf_counter()
    log(f"{name}: encoding {total:,} samples")
    encode = load()
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(f"encoding with {name}", total=total)
        for path, chunk in chunks.items():
            write_atomically(path, _npy(encode(chunk)))
            progress.advance(task, len(chunk))
    log(f"{name}: encoded {total:,} samples in {time.perf_counter() - began:.1f} s")


def _npy(array: NDArray[np.float32]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _read(path: Path, n: int, dim: int) -> NDArray[np.float32]:
    try:
        latents: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise CorruptedDataError(f"{path} cannot be read ({problem}); delete it") from problem
    if latents.shape != (n, dim) or latents.dtype != np.float32:
        raise CorruptedDataError(
            f"{path} must hold float32 latents {(n, dim)}, got {latents.dtype} {latents.shape}; "
            "delete it"
        )
    return latents
