"""Text encoders by name."""

import logging
from collections.abc import Callable

from sheafed.datasets import cache
from sheafed.errors import InputError
from sheafed.text_encoders.catalog import text_encoder_info
from sheafed.text_encoders.optional import required
from sheafed.text_encoders.text_encoder import TextEncoder

logger = logging.getLogger("sheafed.text_encoders")

MAX_TOKENS = 64
SPECIAL_TOKENS = 2  # of beginning and end


def load_text_encoder(
    name: str, max_tokens: int = MAX_TOKENS, *, log: Callable[[str], None] = logger.info
) -> TextEncoder:
    """Return a text encoder by its name, fetching its files first if they are not in the cache.

    Args:
        name: as in `sheafed encoders list`.
        max_tokens: of a text; the rest of a longer one is cut off.
        log: told what is fetched.

    >>> encoder = load_text_encoder("minilm-l6")  # doctest: +SKIP
    >>> encoder.encode(["a cellular sheaf", "a wheat field"]).shape  # doctest: +SKIP
    (2, 384)
    """
    info = text_encoder_info(name)
    if max_tokens <= SPECIAL_TOKENS:
        raise InputError(
            f"max_tokens must be more than the {SPECIAL_TOKENS} special tokens, got {max_tokens}"
        )
    for module in info.needs:
        required(module)  # before anything is downloaded
    if cache.missing_files(info.remote):  # a complete cache may be read-only
        cache.fetch(info.remote, log=log)
    contents = {file.name: cache.read(info.remote, file) for file in info.remote.files}
    tokenize, forward = info.build(contents, max_tokens)
    return TextEncoder(name, info.dim, tokenize, forward, info.padding)
