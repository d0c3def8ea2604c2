r"""The Gaussian mechanism with the exact condition of Balle and Wang (2018).

Adding $\mathcal N(0, \sigma^2 I)$ to a value of sensitivity $\Delta$ is
$(\varepsilon, \delta)$-differentially private if and only if

$$\Phi\left(\frac\mu2 - \frac\varepsilon\mu\right)
- e^\varepsilon\,\Phi\left(-\frac\mu2 - \frac\varepsilon\mu\right) \le \delta,
\qquad \mu = \Delta / \sigma.$$

Any number of such releases, each of which may depend on the earlier ones, are together exactly one
with $\mu = \sqrt{\sum_t \mu_t^2}$ (Dong, Roth and Su 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, isfinite, sqrt

from sheafed.errors import InputError

HALVINGS = 200


def delta_of(epsilon: float, mu: float) -> float:
    """Return the least delta at which the mechanism with this mu is private for epsilon.

    >>> round(delta_of(epsilon=1.0, mu=1.0), 4)
    0.1269
    """
    from scipy.special import log_ndtr, ndtr  # here: few trainings need it

    if mu == 0:
        return 0.0
    lost = exp(min(0.0, epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
    return max(0.0, float(ndtr(mu / 2 - epsilon / mu)) - lost)


def mu_of(epsilon: float, delta: float) -> float:
    r"""Return the largest $\mu$ that is private for (epsilon, delta): $\sigma = \Delta / \mu$.

    >>> round(mu_of(epsilon=1.0, delta=1e-5), 3)
    0.268
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon must be positive and finite, got {epsilon}")
    _check_delta(delta)
    return _largest(lambda mu: delta_of(epsilon, mu) <= delta)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon for which the mechanism with this mu is private at delta.

    >>> round(epsilon_of(mu_of(epsilon=2.0, delta=1e-5), delta=1e-5), 6)
    2.0
    """
    if not (isfinite(mu) and mu >= 0):
        raise InputError(f"mu must be finite and not negative, got {mu}")
    _check_delta(delta)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    below = _largest(lambda epsilon: delta_of(epsilon, mu) > delta)
    return below * (1 + 1e-12)  # the private side of the last bit


def composed(mu: float, releases: int) -> float:
    r"""Return the $\mu$ of several releases with $\mu$ each.

    >>> composed(0.5, releases=4)
    1.0
    """
    return mu * sqrt(releases)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1, got {delta}")


def _largest(holds: Callable[[float], bool]) -> float:
    """Return by bisection the largest number up to which a condition holds that holds near 0."""
    high = 1.0
    while holds(high):
        high *= 2
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
