"""Whether what agents use grows: slopes within the lives of processes, against stated bounds."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chaos.samples import Sample

HOUR = 3600.0
WARM_UP_SECONDS = 300.0
"""Of every life, which are left out: caches and pools fill."""
SHORTEST_HOURS = 0.25
"""A slope per hour means nothing over less."""


@dataclass(frozen=True)
class Trend:
    """A quantity that may grow by at most so much per hour."""

    name: str
    unit: str
    scale: float
    value: Callable[[Sample], float]
    most_per_hour: float
    per_life: bool = True
    """Whether it begins anew when an agent is started."""


MIB = 1 << 20
TRENDS = (
    Trend("memory", "MiB", MIB, lambda s: s.rss, 8.0),
    Trend("memory of the guard", "MiB", MIB, lambda s: s.guard_rss, 1.0),
    Trend("descriptors", "", 1, lambda s: s.descriptors, 1.0),
    Trend("descriptors of the guard", "", 1, lambda s: s.guard_descriptors, 4.0),
    Trend("log", "MiB", MIB, lambda s: s.log_bytes, 1.0, per_life=False),
    Trend(
        "directory without records",
        "MiB",
        MIB,
        lambda s: s.directory_bytes - s.metrics_bytes - s.log_bytes,
        1.0,
        per_life=False,
    ),
)


def slope(samples: Sequence[Sample], trend: Trend) -> float | None:
    """Return the growth per hour, pooled over agents and lives, by least squares.

    Every life has an intercept of its own, so only growth within lives counts. None if all lives
    together are too short.
    """
    lives = defaultdict(list)
    for sample in samples:
        if not trend.per_life or sample.age >= WARM_UP_SECONDS:
            lives[sample.agent, sample.life if trend.per_life else 0].append(sample)
    hours, values = [], []
    longest = 0.0
    for life in lives.values():
        times = np.array([sample.seconds for sample in life]) / HOUR
        amounts = np.array([trend.value(sample) for sample in life]) / trend.scale
        longest = max(longest, float(np.ptp(times)))
        hours.append(times - times.mean())
        values.append(amounts - amounts.mean())
    if longest < SHORTEST_HOURS:
        return None
    x, y = np.concatenate(hours), np.concatenate(values)
    return float(x @ y / (x @ x))
