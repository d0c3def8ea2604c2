"""The offset for the classes of own data, against SciPy and where it has nothing to learn from."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import nn

from sheafed.methods.own_offset import OFFSET_DECAY, fit_offset, with_own_offset
from tests.helpers.small_federations import CLASSES, agent, normal, samples


@pytest.mark.parametrize("soft", [False, True])
def test_it_is_the_minimum_that_scipy_finds(soft: bool) -> None:
    scores = 3 * normal(1, 50, 4, dtype=torch.float64)
    classes = torch.arange(50) % 3  # the last class does not occur
    labels = nn.functional.one_hot(classes, 4).double()
    if soft:
        labels = 0.7 * labels + 0.3 * torch.softmax(normal(2, 50, 4, dtype=torch.float64), dim=-1)

    def loss(b: np.ndarray) -> float:
        predicted = log_softmax(scores.numpy() + b, axis=-1)
        return float(-(labels.numpy() * predicted).sum(-1).mean() + OFFSET_DECAY * b @ b)

    expected = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    found = fit_offset(scores, labels).numpy()
    np.testing.assert_allclose(found, expected.x, atol=1e-4)
    assert np.isfinite(found).all()
    assert soft or found.argmin() == 3


def test_a_head_speaks_for_the_classes_of_own_data() -> None:
    """A head that knows nothing says how often each class occurs."""
    inputs, _ = samples(3, 60)
    targets = torch.tensor([0] * 30 + [1] * 20 + [2] * 10)
    one = agent("a", 4, data=(inputs, targets))
    blank = nn.Linear(4, CLASSES)
    nn.init.zeros_(blank.weight)
    nn.init.zeros_(blank.bias)
    found = torch.softmax(with_own_offset(one, blank, CLASSES)(normal(1, 1, 4)), dim=-1)
    torch.testing.assert_close(found, torch.tensor([[3.0, 2.0, 1.0]]) / 6, atol=0.01, rtol=0)
    assert torch.equal(blank.bias, torch.zeros(CLASSES))


def test_without_labels_there_is_no_offset() -> None:
    one = agent("a", 4, data=samples(3, 60)[0], objective=lambda o, b: o.encode(b.inputs).mean())
    head = nn.Linear(4, CLASSES)
    latents = normal(1, 5, 4)
    torch.testing.assert_close(with_own_offset(one, head, CLASSES)(latents), head(latents))
