r"""The learning-rate schedules for which the paper proves convergence (sec:Convergence_analysis).

Each gives the learning rate of step t, for `Agent(scheduler=follow(...))` with plain SGD. L is the
Lipschitz constant of the gradient of the potential that the updates descend.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from sheafed.errors import InputError

LRSchedule = Callable[[int], float]


class RateSchedule(LRScheduler):
    """Sets the learning rate of all parameters to a function of the step.

    `LambdaLR` has the factor by which the optimiser's own rate is multiplied instead.
    """

    def __init__(self, optimizer: Optimizer, rate: LRSchedule) -> None:
        self.rate = rate
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        return [self.rate(self.last_epoch)] * len(self.optimizer.param_groups)

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "rate"}


def follow(rate: LRSchedule) -> Callable[[Optimizer], RateSchedule]:
    """Return what `Agent(scheduler=...)` takes: the schedule with these learning rates.

    >>> import torch
    >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1.0)
    >>> scheduler = follow(robbins_monro(lipschitz=4.0, power=1.0))(optimizer)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.125]
    """
    return lambda optimizer: RateSchedule(optimizer, rate)


def constant(lipschitz: float) -> LRSchedule:
    r"""Return $\eta = 1/L$ (thm:main_Q).

    >>> constant(lipschitz=4.0)(100)
    0.25
    """
    _positive(lipschitz=lipschitz)
    return lambda t: 1 / lipschitz


def optimised(lipschitz: float, variance: float, gap: float, horizon: int) -> LRSchedule:
    r"""Return $\min\{1/L, \sqrt{2\Delta_0 / (L \sigma^2 (T+1))}\}$ (thm:stochastic_rate_V).

    Args:
        lipschitz: L.
        variance: $\sigma^2$, a bound on the variance of the stochastic gradient.
        gap: $\Delta_0$, the initial potential minus its infimum.
        horizon: T.

    >>> optimised(lipschitz=2.0, variance=1.0, gap=9.0, horizon=8)(0)
    0.5
    """
    _positive(lipschitz=lipschitz, variance=variance, gap=gap)
    if horizon < 0:
        raise InputError(f"horizon must be at least 0, got {horizon}")
    eta = min(1 / lipschitz, math.sqrt(2 * gap / (lipschitz * variance * (horizon + 1))))
    return lambda t: eta


def robbins_monro(lipschitz: float, power: float = 0.75, offset: float = 1.0) -> LRSchedule:
    r"""Return $\eta_t = \frac1L (1 + t/\mathrm{offset})^{-p}$ (ass:rm_steps).

    $\sum \eta_t = \infty$ and $\sum \eta_t^2 < \infty$ exactly for $1/2 < p \le 1$.

    >>> schedule = robbins_monro(lipschitz=1.0, power=1.0)
    >>> [schedule(t) for t in (0, 1, 3)]
    [1.0, 0.5, 0.25]
    """
    _positive(lipschitz=lipschitz, offset=offset)
    if not 0.5 < power <= 1:
        raise InputError(f"Robbins-Monro schedules need a power in (1/2, 1], got {power}")
    return lambda t: (1 + t / offset) ** -power / lipschitz


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise InputError(f"{name} must be positive and finite, got {value}")
