"""What an encoder gave for some samples, remembered within one training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sheafed.agents.samples import Samples, TensorSamples
from sheafed.tensor_tree import tensors

Encoded = tuple[Tensor, Tensor | None]
"""Latents `(n, d)` and targets, if there are any."""
Changes = tuple[tuple[int, int], ...]
"""Of some tensors, which they are and how often each was changed in place."""


class _Entry(NamedTuple):
    samples: Samples
    rows: Tensor
    state: tuple[str, Changes]
    encoded: Encoded

    def holds(self, samples: Samples, rows: Tensor, state: tuple[str, Changes]) -> bool:
        same = self.samples is samples and self.state == state
        return same and torch.equal(self.rows, rows)


class EncodingMemory:
    """The last encoding of each data set of one agent.

    Heads are fitted and compared on the same samples several times, and encoding takes longest.
    Samples are encoded again after a change of weights or statistics, or of data in memory that
    torch counts. What else decides the latents, e.g. an attribute of a module or the rows of a
    `Dataset`, is not looked at: who changes it must call `clear`.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self.times_cleared = 0

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.times_cleared += 1

    def recall(
        self, encoder: nn.Module, samples: Samples, rows: Tensor, encode: Callable[[], Encoded]
    ) -> Encoded:
        """Return what `encode` gave for these rows with weights and data as they are now.

        Args:
            encoder: whose weights they are.
            samples: the data set.
            rows: those of its samples that are encoded.
            encode: called if they are not known.
        """
        state = digest_weights(encoder), _changes_of(samples)
        entry = self._entries.get(id(samples))
        if entry is None or not entry.holds(samples, rows, state):
            entry = self._entries[id(samples)] = _Entry(samples, rows, state, encode())
        return entry.encoded


def _changes_of(samples: Samples) -> Changes:
    if not isinstance(samples, TensorSamples):
        return ()
    return count_changes(t for _, t in tensors([samples.inputs, samples.targets]) if t is not None)


def count_changes(held: Iterable[Tensor]) -> Changes:
    """Return the changes of tensors that torch counts, which costs nothing.

    It counts neither those by `.data` nor those of a NumPy array that shares the memory, and none
    of a tensor that was made in inference mode.
    """
    return tuple((id(t), 0 if t.is_inference() else t._version) for t in held)


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
