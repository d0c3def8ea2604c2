"""How well an alignment is fitted: each directed pair, each edge, and each cycle of a basis."""

import io
import math
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table

from sheafed.alignment.held_out import FEW_DIMENSIONS
from sheafed.alignment.report_tables import pairs_table
from sheafed.alignment.selection import Goal, check_goal
from sheafed.sheaf.holonomy import Holonomy

Verdict = Literal["good", "usable", "poor", "undetermined"]

# The least `first_of_ten` of each word. On new texts a receiver keeps, of the accuracy with its
# own latents, 92 and 98 % where maps are good, 82 and 94 % where they are usable, on two data sets
# (docs/tutorial/align-encoders.md).
GOOD, USABLE = 0.97, 0.8
# The largest residual of each word for receivers of few dimensions. A head that splits Gaussian
# latents at their mean, read with full variance, then decides 90 and 80 % as it would.
GOOD_RESIDUAL, USABLE_RESIDUAL = 0.1, 0.4
# Below this the right pilot is not searched among ten.
FEWEST_SEARCHED = 10
# `first_of_ten` of random ranks: its mean, and the standard deviation for one pilot.
CHANCE, CHANCE_DEVIATION = 0.1, math.sqrt(1 / 19 - 1 / 100)
COLUMNS = 80  # of a printed report
SHOWN_DOUBTS = 3


@dataclass(frozen=True)
class EdgeFit:
    """How well the ends of an edge are aligned, and whether the pilots determine its map."""

    head: str
    tail: str
    d_head: int
    d_tail: int
    misalignment: float | None
    """Of the white pilots that the map was fitted to (see `sheafed.linalg.misalignment`): 0
    aligned, 1 unrelated. With few pilots it is small whatever the encoders do. None if the ends
    have too few pilots in common; their isometry is then that of a joint map."""
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
    pilots: int
    """That the two have in common. If they are too few to judge a map, all figures are None."""
    residual: float | None
    """Mean square error in the receiver's standard units: 0 exact, 1 no better than its mean."""
    residual_spread: float | None
    """Its standard deviation over the folds."""
    top1: float | None
    """How often, among the latents of its fold, the nearest one is that of the same pilot."""
    reciprocal_rank: float | None
    """The mean of 1 / rank of the right pilot in that order."""
    first_of_ten: float | None
    """How often the right pilot is the nearest of ten, the others being random: whatever the number
    of pilots, 1 is certain and 0.1 is chance. By distance for receivers of up to 3 dimensions."""
    neighbour_reciprocal_rank: float | None
    """The mean of 1 / rank of a query's nearest neighbour in an index of mapped latents. Queries
    are the pilots of a fold in the receiver's own latents, the index has the others of the fold."""
    fold_size: int
    """How many pilots are searched: the fewer, the easier."""
    d_receiver: int | None = None
    """The receiver's dimension; None in files that do not have it."""

    def quality(self, goal: Goal) -> float | None:
        """Return a number from 0 to 1; None if no common pilots could judge the map.

        To read `first_of_ten`, to match the reciprocal rank of the right pilot, to search that of
        the nearest neighbour.
        """
        match check_goal(goal):
            case "read":
                return self.first_of_ten
            case "match":
                return self.reciprocal_rank
            case "search":
                return self.neighbour_reciprocal_rank

    @property
    def verdict(self) -> Verdict:
        """What to expect when the receiver reads; undetermined if pilots are too few to tell."""
        if self.first_of_ten is None or self.fold_size < FEWEST_SEARCHED:
            return "undetermined"
        few = self.d_receiver is not None and self.d_receiver <= FEW_DIMENSIONS
        if few and self.residual is not None:
            if self.residual <= GOOD_RESIDUAL:
                return "good"
            return "usable" if self.residual <= USABLE_RESIDUAL else "poor"
        if self.first_of_ten >= GOOD:
            return "good"
        return "usable" if self.first_of_ten >= USABLE else "poor"

    @property
    def at_chance(self) -> bool:
        """Whether enough pilots are found no better than unrelated ones (3 standard errors)."""
        if self.first_of_ten is None or self.fold_size < FEWEST_SEARCHED:
            return False
        return self.first_of_ten <= CHANCE + 3 * CHANCE_DEVIATION / math.sqrt(self.pilots)


@dataclass(frozen=True)
class AlignmentReport:
    """The map of every directed pair, and the sheaf of isometries beside the maps.

    `print(report)` shows a table of the pairs.
    """

    goal: Goal
    pairs: tuple[PairFit, ...]
    """What `send` uses, judged by held-out pilots."""
    edges: tuple[EdgeFit, ...]
    """Of the sheaf, fitted to all pilots."""
    cycles: tuple[Holonomy, ...]
    """The round trip of every cycle of a basis."""

    def __rich__(self) -> Table:
        return pairs_table(self)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=COLUMNS, color_system=None)
        with console.capture() as shown:
            console.print(self)
        return shown.get()

    @property
    def doubt(self) -> str | None:
        """What to ask where maps are at chance; None if no pair is."""
        named = [f"{pair.sender} -> {pair.receiver}" for pair in self.pairs if pair.at_chance]
        if not named:
            return None
        more = f" and {len(named) - SHOWN_DOUBTS} more" if len(named) > SHOWN_DOUBTS else ""
        return (
            f"{', '.join(named[:SHOWN_DOUBTS])}{more} at chance: are the rows of both files the "
            "same inputs in the same order?"
        )

    def below(self, quality: float) -> tuple[PairFit, ...]:
        """Return the pairs whose held-out quality is not known to reach a number from 0 to 1.

        Worst first, before all those that could not be judged.
        """
        poor = []
        for pair in self.pairs:
            found = pair.quality(self.goal)
            if found is None or found < quality:
                poor.append((-1.0 if found is None else found, pair))
        return tuple(pair for _, pair in sorted(poor, key=lambda entry: entry[0]))
