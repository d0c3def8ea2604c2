import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sheafed.agents import paper_optimizer
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import (
    UNLABELLED,
    PseudoLabels,
    cross_entropy,
    hide_labels,
    pseudo_label_loss,
)
from sheafed.agents.samples import Batch
from sheafed.errors import InputError


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def agent(head: bool = True) -> Agent:
    torch.manual_seed(0)
    data = (normal(1, 20, 4), torch.arange(20) % 3)
    return Agent("a", nn.Linear(4, 2), nn.Linear(2, 3) if head else None, data=data)


def same(x: Tensor) -> Tensor:
    return x


def test_by_hand() -> None:
    weak, strong = 3 * normal(2, 12, 4), normal(3, 12, 4)
    total, learnt = 0.0, 0
    for s, t in zip(weak.double().numpy(), strong.double().numpy(), strict=True):
        p = np.exp(s) / np.exp(s).sum()
        if p.max() >= 0.8:
            total -= np.log(np.exp(t[p.argmax()]) / np.exp(t).sum())
            learnt += 1
    assert 2 < learnt < 10
    assert float(pseudo_label_loss(weak, strong, 0.8)) == pytest.approx(total / 12, rel=1e-5)


def test_guesses_are_constants() -> None:
    weak, strong = (3 * normal(2, 12, 4)).requires_grad_(), normal(3, 12, 4).requires_grad_()
    pseudo_label_loss(weak, strong, 0.5).backward()
    assert weak.grad is None
    assert float(strong.grad.abs().sum()) > 0


def test_both_parts_and_their_augmentations() -> None:
    one = agent()
    inputs, targets = one.data.train.batch(torch.arange(12))
    known = torch.arange(12) % 4 == 0
    batch = Batch(inputs, torch.where(known, targets, UNLABELLED))
    objective = PseudoLabels(0.4, 0.7, weak=lambda x: 2 * x, augmentation=lambda x: x - 1)
    weak, strong = (one.head(one.encode(x)) for x in (2 * inputs, inputs - 1))
    expected = nn.functional.cross_entropy(weak[known], targets[known])
    pseudo = pseudo_label_loss(weak[~known], strong[~known], 0.4)
    assert float(pseudo.detach()) > 0
    torch.testing.assert_close(objective(one, batch), expected + 0.7 * pseudo)


def test_with_all_labels_it_is_cross_entropy() -> None:
    one = agent()
    batch = one.data.train.batch(torch.arange(12))
    torch.testing.assert_close(
        PseudoLabels(weak=same, augmentation=same)(one, batch), cross_entropy(one, batch)
    )


def test_a_batch_with_all_labels_has_nothing_to_augment_strongly() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    data = (normal(1, 20, 1, 8, 8), torch.arange(20) % 3)
    one = Agent("a", encoder, nn.Linear(2, 3), data=data)
    loss = PseudoLabels()(one, one.data.train.batch(torch.arange(12)))
    loss.backward()
    assert float(encoder[1].weight.grad.abs().sum()) > 0


def test_a_batch_without_labels_or_confidence_has_no_gradient() -> None:
    one = agent()
    batch = Batch(normal(4, 6, 4), torch.full((6,), UNLABELLED))
    loss = PseudoLabels(confidence=1.0, weak=same, augmentation=same)(one, batch)
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(float(p.grad.abs().sum()) == 0 for p in one.parameters)


def test_unlabelled_samples_help() -> None:
    """Two long blobs, one label each: the pseudo-labels spread along them."""
    stream = torch.Generator().manual_seed(1)
    labels = torch.arange(200) % 2
    along = torch.randn(200, 1, generator=stream) * 2
    across = (2.0 * labels[:, None] - 1) + 0.3 * torch.randn(200, 1, generator=stream)
    inputs = torch.cat([along, across], dim=1)
    targets = torch.full((200,), UNLABELLED)
    far = [int(along[labels == y].argmax()) * 2 + y for y in (0, 1)]
    low = int(along[labels == 0].argmin()) * 2
    targets[[low, far[1]]] = torch.tensor([0, 1])  # told apart along as well as across
    accuracy = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        one = Agent(
            "a",
            nn.Linear(2, 2),
            nn.Linear(2, 2),
            data=(inputs, targets),
            objective=PseudoLabels(
                0.7,
                weight,
                weak=same,
                augmentation=lambda x: x + torch.randn_like(x) * torch.tensor([2, 0]),
            ),
            batch_size=200,
            optimizer=paper_optimizer,
        )
        for _ in range(150):
            with one.rng_context():
                one.optimizer_step(one.objective(one, one.next_batch()))
        guesses = one.head(one.encode(inputs)).argmax(1)
        accuracy[weight] = float((guesses == labels).double().mean())
    assert accuracy[1.0] > accuracy[0.0] + 0.05


def test_what_it_needs() -> None:
    with pytest.raises(InputError, match="agent 'a' has no head, which pseudo-labels need"):
        PseudoLabels()(agent(head=False), Batch(normal(0, 2, 4), torch.zeros(2).long()))
    with pytest.raises(InputError, match="agent 'a' has no targets"):
        PseudoLabels()(agent(), Batch(normal(0, 2, 4), None))
    with pytest.raises(InputError, match="confidence must be at most 1"):
        PseudoLabels(confidence=2)
    with pytest.raises(InputError, match="weight must be at least 0"):
        PseudoLabels(weight=-1)


def test_labels_are_hidden_class_by_class() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 2)
    hidden = hide_labels(labels, 0.1, torch.Generator().manual_seed(0))
    kept = hidden != UNLABELLED
    assert torch.equal(hidden[kept], labels[kept])
    assert torch.bincount(hidden[kept]).tolist() == [5, 3, 1]
    again = hide_labels(labels, 0.1, torch.Generator().manual_seed(0))
    other = hide_labels(labels, 0.1, torch.Generator().manual_seed(1))
    assert torch.equal(hidden, again)
    assert not torch.equal(hidden, other)
    assert torch.equal(hide_labels(labels, 1, torch.Generator()), labels)
    with pytest.raises(InputError, match=r"must lie in \(0, 1\], got 0"):
        hide_labels(labels, 0, torch.Generator())
