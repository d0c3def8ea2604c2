"""A frozen text encoder: a tokenizer and a function from token ids to latents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed.errors import InputError

BATCH = 32

Tokenizer = Callable[[Sequence[str]], list[list[int]]]
"""From texts to their token ids, already cut to the largest number of tokens."""

Forward = Callable[[Tensor, Tensor], Tensor]
"""From token ids and mask `(b, tokens)`, 0 where a token is padding, to latents `(b, d)`."""


@dataclass(frozen=True)
class TextEncoder:
    """A pretrained encoder of texts, which is not trained further.

    Args:
        name: as in `sheafed encoders list`.
        dim: the size d of a latent.
        tokenize: see `Tokenizer`.
        forward: see `Forward`.
        padding: the id that fills up shorter texts of a batch.
    """

    name: str
    dim: int
    tokenize: Tokenizer
    forward: Forward
    padding: int = 0

    def encode(self, texts: Sequence[str], batch_size: int = BATCH) -> NDArray[np.float32]:
        """Return the latents `(n, d)` of n texts.

        Texts of similar length share a batch, which saves most of the padding. A latent does not
        depend on the other texts, up to rounding.
        """
        if isinstance(texts, str):
            raise InputError(f"expected a sequence of texts, got the one text {texts[:40]!r}")
        tokens = self.tokenize(texts)
        order = sorted(range(len(tokens)), key=lambda k: len(tokens[k]))
        latents = np.empty((len(tokens), self.dim), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                members = order[start : start + batch_size]
                ids, mask = padded([tokens[k] for k in members], self.padding)
                latents[members] = self.forward(ids, mask).numpy()
        return latents


def padded(tokens: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Return token ids and mask, both int64 `(b, longest)`; a batch of empty texts has length 1.

    >>> padded([[5, 6], [7]], padding=0)
    (tensor([[5, 6],
            [7, 0]]), tensor([[1, 1],
            [1, 0]]))
    """
    longest = max(1, *map(len, tokens))
    ids = torch.full((len(tokens), longest), padding)
    mask = torch.zeros(len(tokens), longest, dtype=torch.int64)
    for row, sequence in enumerate(tokens):
        ids[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
        mask[row, : len(sequence)] = 1
    return ids, mask
