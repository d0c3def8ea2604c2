"""What an encoder gave for some samples, remembered for as long as its weights are the same."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sheafed.agents.samples import Samples

Encoded = tuple[Tensor, Tensor | None]
"""Latents `(n, d)` and targets, if there are any."""


class _Entry(NamedTuple):
    samples: Samples
    rows: Tensor
    weights: str
    encoded: Encoded

    def holds(self, samples: Samples, rows: Tensor, weights: str) -> bool:
        same = self.samples is samples and self.weights == weights
        return same and torch.equal(self.rows, rows)


class EncodingMemory:
    """The last encoding of each data set of one agent.

    Heads are fitted and compared on the same samples several times, and encoding takes longest.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def recall(
        self, encoder: nn.Module, samples: Samples, rows: Tensor, encode: Callable[[], Encoded]
    ) -> Encoded:
        """Return what `encode` gave for these rows with the weights as they are now.

        Args:
            encoder: whose weights they are.
            samples: the data set.
            rows: those of its samples that are encoded.
            encode: called if they are not known.
        """
        weights = digest_weights(encoder)
        entry = self._entries.get(id(samples))
        if entry is None or not entry.holds(samples, rows, weights):
            entry = self._entries[id(samples)] = _Entry(samples, rows, weights, encode())
        return entry.encoded


def digest_weights(encoder: nn.Module) -> str:
    """Return a digest of weights and statistics.

    Counts of changes, which tensors have, miss those that optimisers make by `.data`.
    """
    content = blake2b(digest_size=16)
    for tensor in chain(encoder.parameters(), encoder.buffers()):
        content.update(f"{tensor.device} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        content.update(flat.view(torch.uint8).numpy().data)
    return content.hexdigest()
