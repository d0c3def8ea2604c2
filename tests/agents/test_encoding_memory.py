"""What is encoded once, and when it is encoded again."""

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent
from tests.helpers.small_federations import CLASSES, agent, samples


class Counted(nn.Module):
    """An encoder that knows how many samples it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.body(x)


ROWS = torch.tensor([9, 2, 40])


@pytest.fixture
def one() -> Agent:
    data = {"train": samples(1, 64), "validation": samples(2, 50)}
    made = agent("a", 4, encoder=Counted(), data=data)
    made.encoder.seen = 0
    return made


def test_the_same_weights_encode_a_sample_once(one: Agent) -> None:
    latents, targets = one.encode_once(one.data.train, ROWS)
    expected = one.encode_samples(one.data.train, ROWS)
    assert torch.equal(latents, expected[0])
    assert torch.equal(targets, expected[1])
    one.encoder.seen = 0
    again = one.encode_once(one.data.train, ROWS.clone())
    assert one.encoder.seen == 0
    assert torch.equal(again[0], latents)
    assert torch.equal(again[1], targets)


def test_other_samples_are_encoded(one: Agent) -> None:
    one.encode_once(one.data.train, ROWS)
    one.encode_once(one.data.validation, ROWS)  # remembered beside the training data
    assert one.encoder.seen == 6
    one.encode_once(one.data.train, ROWS)
    one.encode_once(one.data.validation, ROWS)
    assert one.encoder.seen == 6
    latents, _ = one.encode_once(one.data.train, ROWS + 1)
    assert one.encoder.seen == 9
    assert torch.equal(latents, one.encode_samples(one.data.train, ROWS + 1)[0])


def changed_by_data(one: Agent) -> None:
    one.encoder.body[0].weight.data.add_(0.1)  # tensors do not count such changes


def trained(one: Agent) -> None:
    one.optimizer_step(one.objective(one, one.next_batch()))


def other_statistics(one: Agent) -> None:
    one.encoder.body[1].running_mean.add_(1)


def loaded(one: Agent) -> None:
    weights = one.weights()
    weights["encoder"] = {k: v + 1 for k, v in weights["encoder"].items()}
    one.load_weights(weights)


@pytest.mark.parametrize("change", [changed_by_data, trained, other_statistics, loaded])
def test_other_weights_encode_again(one: Agent, change) -> None:
    before, _ = one.encode_once(one.data.train, ROWS)
    change(one)
    after, targets = one.encode_once(one.data.train, ROWS)
    assert torch.equal(after, one.encode_samples(one.data.train, ROWS)[0])
    assert not torch.equal(after, before)
    assert int(targets.max()) < CLASSES
