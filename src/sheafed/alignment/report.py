"""How well an alignment is fitted: each edge, and each cycle of a basis."""

from dataclasses import dataclass

from sheafed.sheaf.holonomy import Holonomy


@dataclass(frozen=True)
class EdgeFit:
    """How well the ends of an edge are aligned, and whether the pilots determine its map."""

    head: str
    tail: str
    d_head: int
    d_tail: int
    misalignment: float
    """Of the white pilots (see `sheafed.linalg.misalignment`): 0 aligned, 1 unrelated."""
    mismatch: float
    """The same in the smaller space, where the tail reads the head: what routing goes by."""
    rank: int
    """Of the cross-covariance; the map is determined when it equals `d_tail`."""
    gap: float

    @property
    def undetermined_dimension(self) -> int:
        """The dimension of the subspace on which the map is an arbitrary choice."""
        return self.d_tail - self.rank


@dataclass(frozen=True)
class AlignmentReport:
    """The fit of every edge, and the holonomy (round trip) of every cycle of a basis."""

    edges: tuple[EdgeFit, ...]
    cycles: tuple[Holonomy, ...]
