"""The learning-rate schedules of the theory: formulas and checks, and that agents use them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from sheafed import Agent, SheafFRL
from sheafed.agents import lr_schedules
from sheafed.errors import InputError
from tests.helpers.networks import MIXED, curved_agents, network

BAD = [0.0, -1.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("lipschitz", [0.1, 1.0, 250.0])
def test_constant(lipschitz: float) -> None:
    eta = lr_schedules.constant(lipschitz)
    assert [eta(t) for t in (0, 1, 10**6)] == [1 / lipschitz] * 3


def test_optimised_by_hand() -> None:
    # sqrt(2 * 9 / (2 * 1 * (T + 1))) = 3 / sqrt(T + 1), held against 1/2
    for horizon, expected in [(0, 0.5), (35, 0.5), (99, 0.3), (899, 0.1)]:
        eta = lr_schedules.optimised(lipschitz=2, variance=1, gap=9, horizon=horizon)
        assert eta(0) == eta(horizon) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("seed", range(10))
def test_optimised_minimises_the_bound_of_the_proof(seed: int) -> None:
    r"""$2\Delta_0 / (\eta (T+1)) + L \eta \sigma^2$ over $0 < \eta \le 1/L$, by SciPy."""
    lipschitz, variance, gap = np.exp(np.random.default_rng(seed).uniform(-2, 2, 3))
    horizon = 7**seed % 1000
    eta = lr_schedules.optimised(lipschitz, variance, gap, horizon)(0)

    def bound(step: float) -> float:
        return 2 * gap / (step * (horizon + 1)) + lipschitz * step * variance

    best = minimize_scalar(bound, bounds=(1e-9, 1 / lipschitz), options={"xatol": 1e-12})
    assert 0 < eta <= 1 / lipschitz
    assert bound(eta) <= best.fun * (1 + 1e-12)
    theorem = 2 * math.sqrt(2 * lipschitz * variance * gap / (horizon + 1))
    assert bound(eta) <= (theorem + 2 * lipschitz * gap / (horizon + 1)) * (1 + 1e-12)


def test_robbins_monro_by_hand() -> None:
    eta = lr_schedules.robbins_monro(4.0, power=1.0, offset=2.0)
    assert [eta(t) for t in (0, 2, 6)] == pytest.approx([1 / 4, 1 / 8, 1 / 16], rel=1e-15)
    assert lr_schedules.robbins_monro(1.0)(15) == pytest.approx(1 / 8, rel=1e-15)  # 16 ** -3/4


@pytest.mark.parametrize("power", [0.51, 0.75, 1.0])
@pytest.mark.parametrize("offset", [0.5, 1.0, 20.0])
def test_robbins_monro_meets_its_assumption(power: float, offset: float) -> None:
    """ass:rm_steps: never above 1/L; the sum outgrows every bound, that of squares does not.

    The integral test, with the primitive functions written out.
    """
    lipschitz = 3.0
    eta = lr_schedules.robbins_monro(lipschitz, power, offset)
    steps = np.array([eta(t) for t in range(20_000)])
    assert steps.max() == steps[0] == 1 / lipschitz
    assert np.all(np.diff(steps) < 0)
    ends = np.array([1_000, 20_000])
    if power == 1:
        below = offset * np.log1p(ends / offset)
    else:
        below = offset / (1 - power) * ((1 + ends / offset) ** (1 - power) - 1)
    sums = np.array([steps[:n].sum() for n in ends])
    assert np.all(sums >= below / lipschitz)  # and the right-hand side grows without end
    assert np.sum(steps**2) <= (1 + offset / (2 * power - 1)) / lipschitz**2


@pytest.mark.parametrize("bad", BAD)
def test_refusals_name_what_is_wrong(bad: float) -> None:
    good = {"lipschitz": 1.0, "variance": 1.0, "gap": 1.0}
    for name in good:
        with pytest.raises(InputError, match=f"{name} must be positive and finite, got {bad}"):
            lr_schedules.optimised(**{**good, name: bad}, horizon=10)
    with pytest.raises(InputError, match="lipschitz"):
        lr_schedules.constant(bad)
    with pytest.raises(InputError, match="lipschitz"):
        lr_schedules.robbins_monro(bad)
    with pytest.raises(InputError, match="offset"):
        lr_schedules.robbins_monro(1.0, offset=bad)


def test_refusals_of_horizons_and_powers() -> None:
    with pytest.raises(InputError, match="horizon must be at least 0, got -1"):
        lr_schedules.optimised(1.0, 1.0, 1.0, horizon=-1)
    assert lr_schedules.optimised(1.0, 1.0, 1.0, horizon=0)(0) == 1
    for power in (0.5, 0.0, -1.0, 1.01, math.nan):
        with pytest.raises(InputError, match=r"power in \(1/2, 1\], got"):
            lr_schedules.robbins_monro(1.0, power=power)


def test_an_agents_steps_follow_its_schedule_between_exchanges() -> None:
    """A gradient of ones moves a parameter by the sum of the schedule, step by step."""

    def ones(agent: Agent, batch) -> Tensor:
        return sum(p.sum() for p in agent.parameters)

    eta = lr_schedules.robbins_monro(10.0, power=0.6, offset=3.0)
    agents = curved_agents(MIXED, objective=ones, scheduler=lr_schedules.follow(eta), rate=123.0)
    net = network(agents, SheafFRL(penalty=0.0, pilots_per_round=16, exchange_every=3))
    before = net.parameters()
    for round in range(6):
        net.round(round)
    for name, node in net.nodes.items():
        assert node.agent.steps == 6
        assert node.agent.optimizer.param_groups[0]["lr"] == eta(6)
        for old, new in zip(before[name], node.agent.encoder.parameters(), strict=True):
            expected = old - sum(eta(t) for t in range(6))
            torch.testing.assert_close(new.detach(), expected, rtol=0, atol=1e-14)
