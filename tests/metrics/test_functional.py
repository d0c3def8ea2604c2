"""Metrics against scikit-learn."""

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics

from sheafed.errors import InputError
from sheafed.metrics import METRICS, accuracy, macro_f1, mae, mse, r2, top_k_accuracy
from sheafed.metrics.functional import in_shape_of

STREAM = torch.Generator().manual_seed(0)
SCORES = torch.randn(200, 9, generator=STREAM)
LABELS = torch.randint(8, (200,), generator=STREAM)  # class 8 is predicted and never a label
TARGETS = torch.randn(50, 3, generator=STREAM)
OUTPUTS = TARGETS + 0.7 * torch.randn(50, 3, generator=STREAM)


def test_of_classes() -> None:
    predicted, labels = SCORES.argmax(1).numpy(), LABELS.numpy()
    assert 8 in predicted
    assert accuracy(SCORES, LABELS) == sklearn_metrics.accuracy_score(labels, predicted)
    expected = sklearn_metrics.f1_score(labels, predicted, average="macro")
    assert macro_f1(SCORES, LABELS) == pytest.approx(expected, rel=1e-12)
    for k in (1, 2, 5):
        expected = sklearn_metrics.top_k_accuracy_score(
            labels, SCORES.numpy(), k=k, labels=range(9)
        )
        assert top_k_accuracy(SCORES, LABELS, k) == pytest.approx(expected)
    assert top_k_accuracy(SCORES[:, :3], LABELS % 3) == 1.0  # fewer than five classes


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (r2, sklearn_metrics.r2_score),
        (mse, sklearn_metrics.mean_squared_error),
        (mae, sklearn_metrics.mean_absolute_error),
    ],
)
def test_of_numbers(ours, theirs) -> None:
    assert ours(OUTPUTS, TARGETS) == pytest.approx(theirs(TARGETS.numpy(), OUTPUTS.numpy()), 1e-5)
    one = theirs(TARGETS[:, 0].numpy(), OUTPUTS[:, 0].numpy())
    for shape in ((50,), (50, 1)):  # never (50, 50)
        for other in ((50,), (50, 1)):
            found = ours(OUTPUTS[:, 0].reshape(shape), TARGETS[:, 0].reshape(other))
            assert found == pytest.approx(one, 1e-5)
    with pytest.raises(InputError, match=r"gives \(50, 3\) for targets \(50,\); give it one"):
        ours(OUTPUTS, TARGETS[:, 0])


def test_r2_of_constant_targets_is_not_defined() -> None:
    assert math.isnan(r2(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])))
    assert METRICS["r2"](torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])) is None
    assert METRICS["r2"](torch.tensor([1.0]), torch.tensor([3.0])) is None


def test_shapes_that_differ_otherwise_are_left() -> None:
    assert in_shape_of(torch.zeros(4), torch.zeros(4, 3)).shape == (4, 3)
    assert in_shape_of(torch.zeros(1), torch.zeros(1, 1)).shape == (1,)


@pytest.mark.parametrize("metric", [accuracy, macro_f1, top_k_accuracy])
def test_classes_need_labels(metric) -> None:
    with pytest.raises(InputError, match=r"float32 are no classes; convert labels by .long\(\)"):
        metric(SCORES, LABELS.float())
    with pytest.raises(InputError, match="give one label per sample"):
        metric(SCORES, LABELS[:7])
