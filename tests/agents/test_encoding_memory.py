"""What is encoded once, and when it is encoded again."""

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, NonCooperative, train
from tests.helpers.small_federations import CLASSES, agent, samples


class Counted(nn.Module):
    """An encoder that knows how many samples it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        self.seen, self.scale = 0, 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.scale * self.body(x)


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


def other_data(one: Agent) -> None:
    one.data.train.inputs.mul_(2)


@pytest.mark.parametrize("change", [changed_by_data, trained, other_statistics, loaded, other_data])
def test_other_weights_and_data_encode_again(one: Agent, change) -> None:
    before, _ = one.encode_once(one.data.train, ROWS)
    change(one)
    after, targets = one.encode_once(one.data.train, ROWS)
    assert torch.equal(after, one.encode_samples(one.data.train, ROWS)[0])
    assert not torch.equal(after, before)
    assert int(targets.max()) < CLASSES


def test_data_made_in_inference_mode_are_encoded_once() -> None:
    with torch.inference_mode():  # torch does not count changes of such tensors
        data = samples(1, 64)
    one = agent("a", 4, encoder=Counted(), data=data)
    one.encode_once(one.data.train, ROWS)
    one.encoder.seen = 0
    one.encode_once(one.data.train, ROWS)
    assert one.encoder.seen == 0


def test_nothing_is_remembered_from_one_training_to_the_next(one: Agent) -> None:
    before, _ = one.encode_once(one.data.train, ROWS)
    one.encoder.scale = 2.0  # which weights do not tell
    assert torch.equal(one.encode_once(one.data.train, ROWS)[0], before)
    one.reset_rng(0)
    assert torch.equal(one.encode_once(one.data.train, ROWS)[0], 2 * before)


@pytest.mark.parametrize("go_on", [False, True], ids=["train", "network.train"])
def test_a_training_fits_heads_to_encoders_as_they_are(go_on: bool) -> None:
    """Whoever remembers nothing gets the same head."""

    def head(remembers: bool) -> Tensor:
        team = [
            agent(n, 4, k, encoder=seeded_counted(k), data=splits, frozen=True)
            for k, n in enumerate(("a", "b"))
        ]
        method = NonCooperative(refit_head=True)
        given = {"epochs": 1, "progress": False}
        run = train(team, [("a", "b")], method, samples(7, 48)[0], **given)
        team[0].encoder.scale = 5.0
        if not remembers:
            for one in team:
                one.forget_encodings()
        if go_on:
            run.train(**given)
        else:
            run = train(team, [("a", "b")], method, samples(7, 48)[0], **given)
        return run.nodes["a"].reading_head.head.weight

    splits = {"train": samples(1, 64), "validation": samples(2, 50)}
    assert torch.equal(head(remembers=True), head(remembers=False))


def seeded_counted(seed: int) -> Counted:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Counted()


class Noisy(Counted):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn(len(x), 4)


def test_what_an_encoder_draws_follows_from_seed_and_name() -> None:
    def encode(name: str, seed: int, outside: int) -> Tensor:
        one = agent(name, 4, encoder=noisy, data={"train": samples(1, 64)})
        one.reset_rng(seed)
        torch.manual_seed(outside)
        expected, own = torch.get_rng_state(), one.state()["rng_state"]
        found, _ = one.encode_once(one.data.train, ROWS)
        assert torch.equal(torch.get_rng_state(), expected)
        assert torch.equal(one.state()["rng_state"], own)
        return found

    noisy = Noisy()
    first = encode("a", 3, outside=1)
    assert torch.equal(first, encode("a", 3, outside=2))
    assert not torch.equal(first, encode("b", 3, outside=1))
    assert not torch.equal(first, encode("a", 4, outside=1))
