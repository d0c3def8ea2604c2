"""Repeated pilots count once: a copy of a fitted pilot is not held out.

Copies in both parts of a fold would let a map be judged, and its penalty chosen, by what it was
fitted to. Only exact copies are found. Where agents lack pilots, a pilot that repeats two others
for different agents joins them, although a third agent may tell these apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sheafed.errors import RepeatedPilotsWarning

MISSING = -1


def distinct(latents: Sequence[Tensor], present: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return which pilots to keep, `(K,)` bools, and for each the row it repeats, its own if none.

    A pilot repeats another where every agent that has both has equal latents of them, and two
    agents or more have. Latents that are equal for one agent only are no repeat: a coarse encoder
    has such of different inputs.

    >>> x = torch.tensor([[1.0], [2.0], [1.0], [1.0]])
    >>> y = torch.tensor([[5.0], [6.0], [5.0], [7.0]])
    >>> everywhere = torch.ones(4, dtype=torch.bool)
    >>> distinct([x, y], [everywhere, everywhere])[1].tolist()
    [0, 1, 0, 3]

    Args:
        latents: of each agent, `(K, d)`.
        present: for each agent which of the K pilots it has, `(K,)` bools.
    """
    numbers = np.arange(len(present[0]))
    codes = np.stack([_codes(x, here) for x, here in zip(latents, present, strict=True)], axis=1)
    comparable = numbers[(codes != MISSING).sum(1) >= 2]
    links = [_links(codes, comparable, codes)]
    if (codes == MISSING).any():
        for columns in combinations(range(len(latents)), 2):
            pair = codes[:, columns]
            links.append(_links(pair, numbers[(pair != MISSING).all(1)], codes))
    one, other = np.concatenate(links, axis=1)
    graph = coo_array((np.ones(len(one)), (one, other)), shape=(len(numbers),) * 2)
    _, groups = connected_components(graph, directed=False)
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    repeated = torch.from_numpy(first[inverse])
    return repeated == torch.arange(len(repeated)), repeated


def merged(x: Tensor, present: Tensor, kept: Tensor, repeated: Tensor) -> tuple[Tensor, Tensor]:
    """Return an agent's latents of the kept pilots, and which it has, itself or by a copy."""
    if bool(kept.all()):
        return x, present
    source = torch.arange(len(x))
    for row in torch.nonzero(~kept & present).flatten().flip(0).tolist():
        if not present[repeated[row]]:
            source[repeated[row]] = row  # the first copy that the agent has is the last one here
    return x[source][kept], present[source][kept]


def warn_repeated(kept: Tensor, stacklevel: int) -> None:
    """Say how many pilots are left out as repeats, if any."""
    repeats = int((~kept).sum())
    if repeats:
        warnings.warn(
            f"{repeats} of {len(kept)} pilots repeat others: their latents are equal for every "
            f"agent; each pilot counts once, so maps are fitted to and judged by "
            f"{len(kept) - repeats}; encode different inputs to have more",
            RepeatedPilotsWarning,
            stacklevel=stacklevel,
        )


def _codes(x: Tensor, present: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return numbers `(K,)` that are equal where rows are, and `MISSING` where they are missing."""
    seen: dict[bytes, int] = {}
    # Negative zero equals zero, in other bytes.
    rows = (x + 0).contiguous().view(torch.uint8).numpy()
    return np.array(
        [
            seen.setdefault(row.tobytes(), len(seen)) if here else MISSING
            for row, here in zip(rows, present.tolist(), strict=True)
        ],
        dtype=np.int64,
    )


def _links(
    keys: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    codes: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return rows of equal keys that nothing tells apart, each with the first one, `(2, n)`."""
    _, first, inverse = np.unique(keys[rows], axis=0, return_index=True, return_inverse=True)
    others = rows[first[inverse.reshape(-1)]]
    rows, others = rows[rows != others], others[rows != others]
    alike = codes[rows] == codes[others]
    unknown = (codes[rows] == MISSING) | (codes[others] == MISSING)
    agreed = (alike | unknown).all(1)
    return np.stack([rows[agreed], others[agreed]])
