"""The Gaussian mechanism against the definition of differential privacy, integrated."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sheafed.differential_privacy import composed, delta_of, epsilon_of, mu_of
from sheafed.errors import InputError

PRIVACIES = [(e, d) for e in (0.1, 0.5, 1.0, 4.0, 16.0) for d in (1e-3, 1e-5, 1e-8)]


def hockey_stick(epsilon: float, mu: float) -> float:
    """The integral of (p - e^epsilon q)+ over the two laws that a change of one row tells apart."""
    edge = epsilon / mu + mu / 2  # where the two are equal

    def excess(x: float) -> float:
        return float(norm.pdf(x, loc=mu) - math.exp(epsilon) * norm.pdf(x))

    return quad(excess, edge, edge + 40, epsabs=1e-14, limit=500)[0]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0, 6.0])
def test_delta_is_the_integral_of_the_definition(epsilon: float, mu: float) -> None:
    assert delta_of(epsilon, mu) == pytest.approx(hockey_stick(epsilon, mu), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), PRIVACIES)
def test_the_noise_is_just_enough(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta
    assert delta_of(epsilon, 1.001 * mu) > delta
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [p for p in PRIVACIES if p[0] < 1])
def test_the_classical_noise_is_never_less(epsilon: float, delta: float) -> None:
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert 1 / mu_of(epsilon, delta) < classical


def test_releases_compose_as_one_with_less_noise() -> None:
    """Three releases at once, against a sample of their privacy loss."""
    mu, epsilon, count = 0.8, 1.5, 400_000
    x = np.random.default_rng(0).normal(mu, 1, size=(count, 3))
    loss = norm.logpdf(x, loc=mu).sum(1) - norm.logpdf(x).sum(1)
    sampled = np.maximum(0, 1 - np.exp(epsilon - loss)).mean()
    assert delta_of(epsilon, composed(mu, 3)) == pytest.approx(sampled, abs=4e-3)
    assert delta_of(epsilon, mu) < sampled / 2


@pytest.mark.parametrize("mu", [30.0, 300.0])
def test_a_large_loss_is_a_finite_number(mu: float) -> None:
    epsilon = epsilon_of(mu, 1e-5)
    assert delta_of(epsilon, mu) <= 1e-5 < delta_of(0.999 * epsilon, mu)
    assert epsilon == pytest.approx(mu**2 / 2 + mu * norm.isf(1e-5), rel=0.01)


def test_without_a_difference_nothing_is_lost() -> None:
    assert delta_of(1.0, 0.0) == 0
    assert epsilon_of(0.0, 1e-5) == epsilon_of(1e-6, 1e-5) == 0


def test_what_is_no_privacy_is_refused() -> None:
    for epsilon, delta in ((0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1)):
        with pytest.raises(InputError, match="must"):
            mu_of(epsilon, delta)
    with pytest.raises(InputError, match="mu must"):
        epsilon_of(-1, 1e-5)
