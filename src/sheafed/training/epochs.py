"""How many rounds an epoch has where agents have different numbers of samples.

Agents take one training step a round, all together, so an epoch cannot be one pass for each of
them. A rule says of which agent, or of what mean, it is one pass.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from statistics import fmean, median
from typing import Literal, get_args

from sheafed.errors import InputError, UnequalPassesWarning
from sheafed.linalg.checks import as_int

EpochRule = Literal["smallest", "median", "mean", "largest"]
RULES: dict[str, Callable[[Collection[int]], float]] = {
    "smallest": min,
    "median": median,
    "mean": fmean,
    "largest": max,
}
WARN_ABOVE = 4
"""The ratio between the passes of two agents from which on a warning names them."""


def batches(samples: int, batch_size: int) -> int:
    """Return how many rounds one pass takes; the samples that fill no batch are left out.

    >>> batches(samples=100, batch_size=32), batches(samples=10, batch_size=32)
    (3, 1)
    """
    return max(1, samples // batch_size)


def steps_per_pass(samples: int, batch_size: int) -> float:
    """Return after how many steps an agent has seen as many samples as it has.

    >>> steps_per_pass(samples=100, batch_size=32), steps_per_pass(samples=10, batch_size=32)
    (3.125, 1.0)
    """
    return max(1.0, samples / batch_size)


def count_rounds(batches: Collection[int], rounds_per_epoch: int | EpochRule) -> int:
    """Return the rounds of an epoch.

    >>> [count_rounds([1, 2, 2, 40], rule) for rule in ("smallest", "median", "mean", "largest")]
    [1, 2, 11, 40]

    Args:
        batches: of the agents that are trained.
        rounds_per_epoch: a rule, or the number itself.
    """
    check_rounds_per_epoch(rounds_per_epoch)
    if not isinstance(rounds_per_epoch, str):
        return operator.index(rounds_per_epoch)
    if not batches:
        return 1
    return math.floor(RULES[rounds_per_epoch](batches) + 0.5)


def check_rounds_per_epoch(given: int | str) -> None:
    rule = isinstance(given, str) and given in get_args(EpochRule)
    if not rule and (as_int(given) or 0) < 1:
        raise InputError(
            "rounds_per_epoch must be a whole number of at least 1 or one of "
            f"{', '.join(get_args(EpochRule))}, got {given!r}"
        )


def warn_if_unequal(steps: Mapping[str, float]) -> None:
    """Warn if some agent passes over its data more than four times as often as another.

    Args:
        steps: `steps_per_pass` of the agents that are trained.
    """
    if not steps:
        return
    fewest, most = (pick(steps, key=lambda name: steps[name]) for pick in (min, max))
    if steps[most] > WARN_ABOVE * steps[fewest]:
        ratio = steps[most] / steps[fewest]
        warnings.warn(
            f"a pass over its data takes agent {fewest!r} {steps[fewest]:.3g} steps and {most!r} "
            f"{steps[most]:.3g}: {fewest!r} passes over its data {ratio:.3g} times as often; give "
            f"{most!r} a larger batch_size, or choose epochs and rounds_per_epoch by the passes of "
            "each agent, which the records and the summary show",
            UnequalPassesWarning,
            stacklevel=3,
        )
