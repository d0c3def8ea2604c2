"""The option `maps`: when restriction maps are refitted, and from what."""

from dataclasses import field
from typing import ClassVar, Literal

from sheafed.options import Count, Fraction, options


@options
class MapPolicy:
    """When maps are refitted, and from what.

    >>> policy = MapPolicy(every=3)
    >>> [policy.fit_number(round, rounds_per_epoch=10) for round in range(7)]
    [0, None, 1, None, None, 2, None]

    Args:
        every: rounds between two fits, or `"epoch"`: then it falls on an epoch's last round.
            The first round always fits.
        source: `"round"`: this round's pilots, as the algorithms are printed; `"all"`: the whole
            pilot set, which is then transmitted at every fit; `"running"`: a cross-covariance
            that decays over rounds and costs no extra bytes.
        decay: what a round leaves of the running cross-covariance.
    """

    kind: Literal["procrustes"] = field(default="procrustes", kw_only=True, repr=False)
    every: Count | Literal["epoch"] = 1
    source: Literal["round", "all", "running"] = "running"
    decay: Fraction = 0.9

    def fit_number(self, round: int, rounds_per_epoch: int) -> int | None:
        """Return the number of fits before this round's, or None if this round has none."""
        period = rounds_per_epoch if self.every == "epoch" else int(self.every)
        if period == 1 or round == 0:
            return round
        number, rest = divmod(round + 1, period)
        return number if rest == 0 else None


@options
class IdentityMaps:
    """One shared latent space: every map is the identity, and is never fitted."""

    kind: Literal["identity"] = field(default="identity", kw_only=True, repr=False)
    source: ClassVar[Literal["none"]] = "none"

    def fit_number(self, round: int, rounds_per_epoch: int) -> None:
        """Return None: no round has a fit."""
