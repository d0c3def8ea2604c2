import numpy as np
import pytest
import torch
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import (
    Objective,
    OnlineProbe,
    PseudoLabels,
    cross_entropy,
    soft_cross_entropy,
)
from sheafed.agents.samples import Batch
from sheafed.errors import DtypeError, InputError, ShapeError

STREAM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(9, 4, generator=STREAM)
TARGETS = torch.randint(3, (9,), generator=STREAM)


def agent(head: bool = True) -> Agent:
    torch.manual_seed(0)
    return Agent("a", nn.Linear(4, 2), nn.Linear(2, 3) if head else None, data=(INPUTS, TARGETS))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def test_cross_entropy_by_hand() -> None:
    one = agent()
    loss = cross_entropy(one, Batch(INPUTS, TARGETS))
    latents = INPUTS.numpy() @ one.encoder.weight.detach().numpy().T
    latents = latents + one.encoder.bias.detach().numpy()
    logits = latents @ one.head.weight.detach().numpy().T + one.head.bias.detach().numpy()
    expected = -log_softmax(logits.astype(float))[np.arange(9), TARGETS.numpy()].mean()
    assert loss.ndim == 0
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_reaches_encoder_and_head() -> None:
    one = agent()
    cross_entropy(one, Batch(INPUTS, TARGETS)).backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in one.parameters)


def test_cross_entropy_without_a_head() -> None:
    with pytest.raises(InputError, match="agent 'a' has no head, which cross-entropy needs"):
        cross_entropy(agent(head=False), Batch(INPUTS, TARGETS))


def test_cross_entropy_without_labels() -> None:
    with pytest.raises(InputError, match="agent 'a' has no labels, which cross-entropy needs"):
        cross_entropy(agent(), Batch(INPUTS, None))


OBJECTIVES = {
    "cross-entropy": cross_entropy,
    "online probe": OnlineProbe(lambda agent, batch: torch.zeros(())),
    "pseudo-labels": PseudoLabels(augmentation=lambda x: x, weak=lambda x: x),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("label", [3, 255, -2, -100])
def test_labels_without_a_score_are_named(objective: Objective, label: int) -> None:
    targets = TARGETS.clone()
    targets[4] = label
    with pytest.raises(InputError, match=rf"agent 'a': .* 0 to 2, .* 3 outputs, got {label};"):
        objective(agent(), Batch(INPUTS, targets))


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8, torch.uint16])
def test_labels_of_any_integer_type_are_labels(objective: Objective, kind: torch.dtype) -> None:
    """Also from samples of a user's own, which nothing has converted."""
    expected = objective(agent(), Batch(INPUTS, TARGETS))
    assert torch.equal(objective(agent(), Batch(INPUTS, TARGETS.to(kind))), expected)


def test_what_is_no_label_is_named() -> None:
    for kind in (torch.float32, torch.bool):
        with pytest.raises(DtypeError, match=rf"agent 'a': .*got {kind} of shape \(9,\); convert"):
            cross_entropy(agent(), Batch(INPUTS, TARGETS.to(kind)))
    with pytest.raises(ShapeError, match=r"agent 'a': .*\(9,\), one per sample, got \(9, 1\)"):
        cross_entropy(agent(), Batch(INPUTS, TARGETS[:, None]))


def test_class_probabilities_are_targets() -> None:
    certain = nn.functional.one_hot(TARGETS, 3).float()
    expected = cross_entropy(agent(), Batch(INPUTS, TARGETS))
    torch.testing.assert_close(cross_entropy(agent(), Batch(INPUTS, certain)), expected)


def test_soft_cross_entropy_by_hand() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, generator=STREAM).requires_grad_()
    probabilities = torch.softmax(torch.randn(5, 3, dtype=torch.float64, generator=STREAM), -1)
    loss = soft_cross_entropy(logits, probabilities)
    expected = -(probabilities.numpy() * log_softmax(logits.detach().numpy())).sum(1).mean()
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
    loss.backward()
    gradient = (torch.softmax(logits, -1) - probabilities) / 5
    assert torch.allclose(logits.grad, gradient)


def test_soft_cross_entropy_of_certain_probabilities_is_cross_entropy() -> None:
    logits = torch.randn(5, 3, generator=STREAM)
    targets = torch.tensor([0, 1, 2, 1, 0])
    probabilities = nn.functional.one_hot(targets, 3).float()
    expected = nn.functional.cross_entropy(logits, targets)
    assert torch.allclose(soft_cross_entropy(logits, probabilities), expected)
