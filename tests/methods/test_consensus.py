"""The consensus of predictions and the temperature, against NumPy and SciPy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from torch import Tensor

from sheafed.methods.consensus import TEMPERATURES, consensus, fit_temperature
from tests.helpers.small_federations import normal

AGENTS, SAMPLES, CLASSES = 4, 30, 5


def predictions(scale: float = 2.0) -> list[Tensor]:
    scores = (scale * normal(k, SAMPLES, CLASSES, dtype=torch.float64) for k in range(AGENTS))
    return [torch.softmax(s, dim=-1) for s in scores]


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 4.0, 12.5])
def test_the_consensus_sample_by_sample(sharpness: float) -> None:
    given = predictions()
    found = consensus(given, sharpness).numpy()
    for n in range(SAMPLES):
        rows = [p[n].numpy() for p in given]
        weights = [max(row) ** sharpness for row in rows]
        expected = sum(w * row for w, row in zip(weights, rows, strict=True)) / sum(weights)
        np.testing.assert_allclose(found[n], expected, rtol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)


def test_its_limits() -> None:
    """Without sharpness the plain mean; with ever more of it the most confident alone."""
    given = predictions()
    stacked = np.stack([p.numpy() for p in given])
    np.testing.assert_allclose(consensus(given, 0), stacked.mean(0), rtol=1e-12)
    most = stacked.max(-1).argmax(0)
    expected = stacked[most, np.arange(SAMPLES)]
    # In single precision (1 / 5)^1000 is 0, and 0 / 0 no consensus.
    sharp = consensus([p.float() for p in given], 1e5)
    np.testing.assert_allclose(sharp, expected, rtol=1e-3)
    assert torch.equal(consensus(given[:1], 4), given[0])


def test_it_depends_on_neither_order_nor_scale_of_confidence() -> None:
    given = predictions()
    torch.testing.assert_close(consensus(given[::-1], 4), consensus(given, 4))
    torch.testing.assert_close(consensus([given[0]] * 3, 4), given[0])


def negative_log_likelihood(inverse: float, scores: np.ndarray, labels: np.ndarray) -> float:
    if labels.ndim == 1:
        labels = np.eye(scores.shape[1])[labels]
    return float(-(labels * log_softmax(inverse * scores, axis=-1)).sum(-1).mean())


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("soft", [False, True])
def test_the_temperature_is_that_of_least_validation_loss(true: float, soft: bool) -> None:
    """Labels are drawn by the scores at a known temperature; SciPy finds the best one."""
    scores = 3 * normal(1, 400, CLASSES).numpy().astype(np.float64)
    chances = softmax(scores / true, axis=-1)
    stream = np.random.default_rng(0)
    drawn = np.array([stream.choice(CLASSES, p=p / p.sum()) for p in chances])
    labels = chances if soft else drawn
    low, high = TEMPERATURES
    best = minimize_scalar(
        negative_log_likelihood,
        args=(scores, labels),
        bounds=(1 / high, 1 / low),
        method="bounded",
        options={"xatol": 1e-9},
    )
    found = fit_temperature(torch.as_tensor(scores), torch.as_tensor(labels))
    assert found == pytest.approx(1 / best.x, rel=1e-5)
    assert found == pytest.approx(true, rel=1e-5 if soft else 0.2)


def test_it_stays_within_bounds() -> None:
    """Heads that are always right, or always wrong, or know nothing, have no best temperature."""
    low, high = TEMPERATURES
    scores, labels = 5 * torch.eye(3), torch.arange(3)
    assert fit_temperature(scores, labels) == pytest.approx(low, rel=1e-6)
    assert fit_temperature(scores, labels.roll(1)) == pytest.approx(high, rel=1e-6)
    assert low <= fit_temperature(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])) <= high


def test_scores_in_any_precision_and_of_any_offset() -> None:
    scores, labels = 2 * normal(3, 50, CLASSES), torch.arange(50) % CLASSES
    found = fit_temperature(scores, labels)
    assert fit_temperature(scores + 100 * normal(4, 50, 1), labels) == pytest.approx(
        found, rel=1e-4
    )
    assert fit_temperature(scores.half(), labels) == pytest.approx(found, rel=1e-2)
