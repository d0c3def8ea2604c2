"""Class probabilities as bytes: how far they are off, and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafed.methods.predictions import LEVELS, are_sent_probabilities, as_bytes, from_bytes
from tests.helpers.matrices import PROPERTY


@PROPERTY
@given(st.integers(2, 1000), st.floats(0.01, 30), st.integers(0, 2**32 - 1))
def test_what_arrives_is_what_was_sent_up_to_rounding(
    classes: int, scale: float, seed: int
) -> None:
    """A root is off by half a step, so p / max p by at most (2 root + 1 / 510) / 510."""
    scores = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, classes)) * scale)
    probabilities = torch.softmax(scores, dim=-1).float()
    sent = as_bytes(probabilities)
    assert sent.dtype == torch.uint8
    assert are_sent_probabilities(sent)
    found = from_bytes(sent)
    torch.testing.assert_close(found.sum(-1), torch.ones(5))
    relative = probabilities / probabilities.amax(-1, keepdim=True)
    received = found / found.amax(-1, keepdim=True)
    step = 1 / (2 * LEVELS)
    assert torch.all((received - relative).abs() <= step * (2 * relative.sqrt() + step) + 1e-5)


def test_many_small_probabilities_keep_their_weight() -> None:
    """Half for one class, half for 999 others: equal steps would give all of it to the one."""
    probabilities = torch.full((1, 1000), 0.5 / 999)
    probabilities[0, 7] = 0.5
    found = from_bytes(as_bytes(probabilities))
    assert float(found[0, 7]) == pytest.approx(0.5, abs=0.01)
    linear = (255 * probabilities / 0.5).round()
    assert float(linear[0, 7] / linear.sum()) == 1.0


@pytest.mark.parametrize("row", [[0, 0, 0], [254, 3, 0]])
def test_rows_without_a_largest_class_are_refused(row: list[int]) -> None:
    good = torch.tensor([[255, 0, 0]], dtype=torch.uint8)
    assert are_sent_probabilities(good)
    assert not are_sent_probabilities(torch.cat([good, torch.tensor([row], dtype=torch.uint8)]))
