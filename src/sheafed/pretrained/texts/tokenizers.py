"""Texts as token ids: `tokenizer.json` files, SentencePiece models, and lists of words."""

import re
from collections.abc import Mapping, Sequence

from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.text_encoder import Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")


def json_tokenizer(content: bytes, max_tokens: int, *, special: bool = True) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`.

    Args:
        content: of the file.
        max_tokens: of a text, special tokens included; the rest is cut off.
        special: whether to add the special tokens, e.g. [CLS] and [SEP].
    """
    tokenizer = required("tokenizers").Tokenizer.from_buffer(content)
    tokenizer.no_padding()  # files carry a fixed length
    tokenizer.enable_truncation(max_tokens)

    def tokenize(texts: Sequence[str]) -> list[list[int]]:
        encoded = tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [encoding.ids for encoding in encoded]

    return tokenize


def sentencepiece_tokenizer(content: bytes, max_tokens: int) -> Tokenizer:
    """Return the tokenizer of a SentencePiece model, with its tokens of beginning and end."""
    model = required("sentencepiece").SentencePieceProcessor(model_proto=content)
    begin, end = model.bos_id(), model.eos_id()

    def tokenize(texts: Sequence[str]) -> list[list[int]]:
        pieces: list[list[int]] = model.encode(list(texts), out_type=int)
        return [[begin, *ids[: max_tokens - 2], end] for ids in pieces]

    return tokenize


def word_tokenizer(words: Mapping[str, int], max_tokens: int) -> Tokenizer:
    """Return a tokenizer into lower-case words and signs; those without an id are left out.

    >>> word_tokenizer({"the": 0, "sheaf": 1, ".": 2}, max_tokens=3)(["The cellular sheaf."])
    [[0, 1, 2]]
    """

    def ids(text: str) -> list[int]:
        found = (words.get(match[0]) for match in WORD.finditer(text.lower()))
        return [k for k in found if k is not None][:max_tokens]

    return lambda texts: [ids(text) for text in texts]
