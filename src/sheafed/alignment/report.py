"""How well an alignment is fitted: each directed pair, each edge, and each cycle of a basis."""

from dataclasses import dataclass

from sheafed.alignment.selection import Goal
from sheafed.sheaf.holonomy import Holonomy


@dataclass(frozen=True)
class EdgeFit:
    """How well the ends of an edge are aligned, and whether the pilots determine its map."""

    head: str
    tail: str
    d_head: int
    d_tail: int
    misalignment: float
    """Of the white pilots that the map was fitted to (see `sheafed.linalg.misalignment`): 0
    aligned, 1 unrelated. With few pilots it is small whatever the encoders do."""
    rank: int
    """Of the cross-covariance; the map is determined when it equals `d_tail`."""
    gap: float

    @property
    def undetermined_dimension(self) -> int:
        """The dimension of the subspace on which the map is an arbitrary choice."""
        return self.d_tail - self.rank


@dataclass(frozen=True)
class PairFit:
    """The map from a sender to a receiver, judged by pilots that it was not fitted to.

    The map was chosen among candidates by the same folds, so its figures are a little optimistic.
    """

    sender: str
    receiver: str
    kind: str
    strength: dict[str, float]
    """The options that held-out pilots chose, such as the shrinkage."""
    residual: float
    """Mean square error in the receiver's standard units: 0 exact, 1 no better than its mean."""
    residual_spread: float
    """Its standard deviation over the folds."""
    top1: float
    """How often, among the latents of its fold, the nearest one is that of the same pilot."""
    reciprocal_rank: float
    """The mean of 1 / rank of the right pilot in that order."""
    fold_size: int
    """How many pilots are searched: the fewer, the easier."""

    def quality(self, goal: Goal) -> float:
        """Return a number from 0 to 1: the explained share of variance, or the reciprocal rank."""
        return min(1.0, max(0.0, 1 - self.residual)) if goal == "read" else self.reciprocal_rank


@dataclass(frozen=True)
class AlignmentReport:
    """The map of every directed pair, every edge, and the round trip of every cycle of a basis."""

    goal: Goal
    pairs: tuple[PairFit, ...]
    edges: tuple[EdgeFit, ...]
    cycles: tuple[Holonomy, ...]

    def below(self, quality: float) -> tuple[PairFit, ...]:
        """Return the pairs whose held-out quality is below a number from 0 to 1, worst first."""
        poor = (pair for pair in self.pairs if pair.quality(self.goal) < quality)
        return tuple(sorted(poor, key=lambda pair: pair.quality(self.goal)))
