"""The warning of pilots that are too few for a map."""

from __future__ import annotations

import warnings

from sheafed.errors import UndeterminedMapWarning
from sheafed.graphs import Edge


def warn_if_rank_is_low(edge: Edge, pilots: int, rank: int, needed: int, remedy: str) -> None:
    """Warn if the pilots that a map is fitted from leave it undetermined.

    Args:
        edge: of the map.
        pilots: how many there are.
        rank: the largest that a cross-covariance of their white latents can have.
        needed: the smaller latent size of the edge.
        remedy: what to do.
    """
    if rank < needed:
        warnings.warn(
            f"edge {edge.tail} -> {edge.head}: {pilots} pilots leave the map undetermined on a "
            f"subspace of dimension {needed - rank} of {needed}; {remedy}",
            UndeterminedMapWarning,
            stacklevel=4,
        )
