"""Text encoders by name."""

from collections.abc import Callable

from sheafed.errors import InputError
from sheafed.pretrained.latents import logger
from sheafed.pretrained.sizes import MAX_TOKENS
from sheafed.pretrained.texts.catalog import text_encoder_info
from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.text_encoder import TextEncoder

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
    tokenize, forward = info.build(info.contents(log), max_tokens)
    return TextEncoder(name, info.dim, tokenize, forward, info.padding)
