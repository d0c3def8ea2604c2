"""Latents of texts, from the cache if they are there."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256

from torch import Tensor

from sheafed.errors import EmptyInputError, InputError
from sheafed.pretrained import latents
from sheafed.pretrained.sizes import MAX_TOKENS
from sheafed.pretrained.texts.catalog import text_encoder_info
from sheafed.pretrained.texts.loading import load_text_encoder


def encode_texts(
    encoder: str,
    texts: Sequence[str],
    max_tokens: int = MAX_TOKENS,
    *,
    log: Callable[[str], None] = latents.logger.info,
) -> Tensor:
    """Return the latents `(n, d)` of texts, float32, encoding only what is not in the cache.

    Args:
        encoder: its name, as in `sheafed encoders list`.
        texts: n of them.
        max_tokens: of a text; the rest of a longer one is cut off.
        log: told what is fetched and encoded; a terminal shows a progress bar besides.
    """
    info = text_encoder_info(encoder)
    if isinstance(texts, str):
        raise InputError(f"expected a sequence of texts, got the one text {texts[:40]!r}")
    if not texts:
        raise EmptyInputError("no texts to encode; give at least one")
    chunks = _chunks(texts)
    keys = [chunk_key(encoder, chunk, max_tokens) for chunk in chunks]
    return latents.cached_latents(
        info, chunks, keys, lambda: load_text_encoder(encoder, max_tokens, log=log).encode, log
    )


def texts_are_encoded(encoder: str, texts: Sequence[str], max_tokens: int = MAX_TOKENS) -> bool:
    """Whether the cache has the latents of these texts, so that nothing need be encoded."""
    keys = [chunk_key(encoder, chunk, max_tokens) for chunk in _chunks(texts)]
    return latents.are_cached(text_encoder_info(encoder), keys)


def _chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    size = latents.CHUNK
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def chunk_key(encoder: str, texts: Sequence[str], max_tokens: int) -> str:
    """Return the digest of all that the latents of a chunk depend on."""
    content = [*text_encoder_info(encoder).identity(), max_tokens, list(texts)]
    return sha256(json.dumps(content, separators=(",", ":")).encode("ascii")).hexdigest()
