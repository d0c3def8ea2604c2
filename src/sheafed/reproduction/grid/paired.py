r"""Differences of two methods, paired by seed, with their confidence intervals.

The same seed draws the same data, weights and batches for all methods, so what differs between
seeds cancels. Of differences $\delta_1, \dots, \delta_n$ with mean $\bar\delta$ and standard
deviation $\sigma$, the interval is $\bar\delta \pm t_{n-1}(0.975)\, \sigma / \sqrt n$, by Student.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and half the width of its confidence interval."""

    mean: float
    margin: float | None
    """None with a single pair, from which no noise can be told."""

    @property
    def rose(self) -> bool:
        """Whether the interval lies above 0: a rise beyond noise."""
        return self.margin is not None and self.mean - self.margin > 0

    @property
    def fell(self) -> bool:
        """Whether the interval lies below 0: a fall beyond noise."""
        return self.margin is not None and self.mean + self.margin < 0


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """Return by how much the first exceeds the second, over the seeds that both have.

    >>> paired_difference({0: 0.75, 1: 0.5}, {0: 0.5, 1: 0.25, 2: 0.9})
    Difference(mean=0.25, margin=0.0)
    """
    differences = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    n = len(differences)
    if n == 0:
        return None
    margin = None
    if n > 1:
        quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
        margin = quantile * statistics.stdev(differences) / math.sqrt(n)
    return Difference(statistics.fmean(differences), margin)
