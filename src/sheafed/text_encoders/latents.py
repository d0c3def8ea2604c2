"""The cache of latents: texts are encoded once, chunk by chunk."""

import io
import json
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor

from sheafed.atomic_io import write_atomically
from sheafed.datasets.cache import data_directory, locked
from sheafed.errors import CorruptedDataError, EmptyInputError, InputError
from sheafed.text_encoders.catalog import text_encoder_info
from sheafed.text_encoders.loading import MAX_TOKENS, load_text_encoder, logger

CHUNK = 256


def encode_cached(
    encoder: str,
    texts: Sequence[str],
    max_tokens: int = MAX_TOKENS,
    *,
    log: Callable[[str], None] = logger.info,
) -> Tensor:
    """Return the latents `(n, d)` of texts, float32, encoding only what is not in the cache.

    The cache keeps every chunk of 256 texts in a file of its own, named by the digest of all that
    its latents depend on. An interrupted encoding goes on where it stopped, and texts that
    begin with texts encoded before are encoded from there on.

    Args:
        encoder: its name, as in `sheafed encoders list`.
        texts: n of them.
        max_tokens: of a text; the rest of a longer one is cut off.
        log: told what is fetched and encoded; a terminal shows a progress bar besides.
    """
    if isinstance(texts, str):
        raise InputError(f"expected a sequence of texts, got the one text {texts[:40]!r}")
    if not texts:
        raise EmptyInputError("no texts to encode; give at least one")
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    directory = data_directory() / "latents" / encoder
    paths = [directory / f"{chunk_key(encoder, chunk, max_tokens)}.npy" for chunk in chunks]
    if not all(path.exists() for path in paths):  # a complete cache may be read-only
        with locked(directory, log):
            missing = {p: c for p, c in zip(paths, chunks, strict=True) if not p.exists()}
            _encode_missing(encoder, missing, max_tokens, log)
    dim = text_encoder_info(encoder).dim
    parts = [_read(path, len(chunk), dim) for path, chunk in zip(paths, chunks, strict=True)]
    return torch.from_numpy(np.concatenate(parts))


def chunk_key(encoder: str, texts: Sequence[str], max_tokens: int) -> str:
    """Return the digest of all that the latents of a chunk depend on."""
    info = text_encoder_info(encoder)
    digests = [file.sha256 for file in info.remote.files]
    content = [encoder, info.revision, digests, max_tokens, list(texts)]
    return sha256(json.dumps(content, separators=(",", ":")).encode("ascii")).hexdigest()


def _encode_missing(
    encoder: str,
    chunks: dict[Path, Sequence[str]],
    max_tokens: int,
    log: Callable[[str], None],
) -> None:
    if not chunks:
        return
    total = sum(map(len, chunks.values()))
    began = time.perf_counter()
    log(f"{encoder}: encoding {total:,} texts")
    model = load_text_encoder(encoder, max_tokens, log=log)
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(f"encoding with {encoder}", total=total)
        for path, texts in chunks.items():
            write_atomically(path, _npy(model.encode(texts)))
            progress.advance(task, len(texts))
    log(f"{encoder}: encoded {total:,} texts in {time.perf_counter() - began:.1f} s")


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
