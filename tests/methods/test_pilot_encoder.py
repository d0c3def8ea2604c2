"""Pilots are encoded again only when the weights have changed."""

from pathlib import Path

import pytest
import torch

from sheafed import Agent, ConsensusDistillation, NonCooperative, PilotSet, SheafFRL, train
from sheafed.methods.pilot_encoder import PilotEncoder
from tests.helpers.federations import same, weights


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of inputs of every call of an encoder."""
    made: list[int] = []
    encode = Agent.encode

    def counted(self: Agent, inputs: torch.Tensor) -> torch.Tensor:
        made.append(len(inputs))
        return encode(self, inputs)

    monkeypatch.setattr(Agent, "encode", counted)
    return made


def agent(name: str = "ada", *layers: torch.nn.Module, **options: object) -> Agent:
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), *layers)
    data = {"train": (torch.randn(8, 3), torch.arange(8) % 2)}
    return Agent(name, encoder, torch.nn.Linear(4, 2), data=data, **options)


def change_by_data(one: Agent) -> None:
    next(one.encoder.parameters()).data.add_(1)


def change_in_place(one: Agent) -> None:
    with torch.no_grad():
        next(one.encoder.parameters()).add_(1)


def change_statistics(one: Agent) -> None:
    one.encoder.train()
    one.encoder(torch.randn(8, 3))


@torch.no_grad()
@pytest.mark.parametrize("change", [change_by_data, change_in_place, change_statistics])
def test_all_pilots_are_encoded_once_per_state_of_the_weights(calls, change) -> None:
    one, pilots = agent(), PilotSet(torch.randn(5, 3))
    encode = PilotEncoder(one, pilots)
    first = encode()
    assert torch.equal(encode(), first)
    assert calls == [5]
    change(one)
    calls.clear()
    second = encode()
    assert calls == [5]
    assert not torch.equal(first, second)
    assert torch.equal(second, PilotEncoder(one, pilots)())


def test_latents_that_are_learnt_from_are_always_encoded(calls) -> None:
    encode = PilotEncoder(agent(), PilotSet(torch.randn(5, 3)))
    with torch.no_grad():
        encode()
    assert encode().requires_grad
    assert encode(torch.tensor([1, 2])).shape == (2, 4)
    assert calls == [5, 5, 2]


def loaded(one: Agent) -> None:
    one.load_weights({**one.weights(), "encoder": agent().encoder.state_dict()})


def forgotten(one: Agent) -> None:
    one.forget_encodings()


@pytest.mark.parametrize("change", [change_in_place, change_statistics, loaded, forgotten])
def test_a_frozen_encoder_encodes_pilots_once_per_state(calls, change) -> None:
    one, pilots = agent(frozen=True), PilotSet(torch.randn(5, 3))
    encode = PilotEncoder(one, pilots)
    encode(torch.tensor([1]))
    assert not encode().requires_grad
    assert calls == [5]
    change(one)
    one.encoder.eval()
    calls.clear()
    assert torch.equal(encode(torch.tensor([3, 1])), encode()[[3, 1]])
    assert calls == [5]
    assert torch.equal(encode(), one.encode(pilots.of("ada")))


def shrink_by_data(one: Agent) -> None:
    one.encoder[0].weight.data.mul_(0.1)


def give_an_attribute(one: Agent) -> None:
    one.encoder[1].eps = 1.0


@pytest.mark.parametrize("change", [change_in_place, shrink_by_data, give_an_attribute])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_training_fits_maps_to_encoders_as_they_are(change, frozen: bool) -> None:
    team = [agent(name, batch_size=4, frozen=frozen) for name in ("ada", "bob")]
    run = train(team, [("ada", "bob")], NonCooperative(), torch.randn(9, 3), epochs=1)
    change(team[0])
    run.train(epochs=1)
    node = run.nodes["ada"]
    with team[0].inference(), torch.no_grad():
        now = team[0].encode(run.pilots.of("ada"))
    torch.testing.assert_close(node.whitening.running_mean, now.mean(0))


class Noise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.3 * torch.randn_like(x)


def test_what_an_encoder_draws_follows_from_seed_and_name() -> None:
    def encode(name: str, seed: int, outside: int, learning: bool) -> torch.Tensor:
        one = agent(name, Noise())
        one.reset_rng(seed)
        torch.manual_seed(outside)
        expected, own = torch.get_rng_state(), one.state()["rng_state"]
        with torch.set_grad_enabled(learning):
            found = PilotEncoder(one, pilots)()
        assert torch.equal(torch.get_rng_state(), expected)
        assert torch.equal(one.state()["rng_state"], own)
        return found.detach()

    pilots = PilotSet(torch.randn(5, 3))
    for learning in (False, True):
        first = encode("ada", 3, 1, learning)
        assert torch.equal(first, encode("ada", 3, 2, learning))
        assert not torch.equal(first, encode("bob", 3, 1, learning))
        assert not torch.equal(first, encode("ada", 4, 1, learning))


@pytest.mark.parametrize("method", [NonCooperative(), ConsensusDistillation(0.0), SheafFRL()])
def test_training_with_an_encoder_that_draws_is_repeatable(method, tmp_path: Path) -> None:
    def run(outside: int, **options: object) -> dict[str, torch.Tensor]:
        team = [agent(name, Noise(), batch_size=4) for name in ("ada", "bob")]
        torch.manual_seed(outside)
        edges = [("ada", "bob")]
        network = train(team, edges, method, pilots, seed=5, **{"epochs": 2, **options})
        maps = {
            f"{name} {j}": torch.as_tensor(endpoint.map)
            for name, node in network.nodes.items()
            for j, endpoint in node.endpoints.items()
        }
        return weights(network) | maps

    pilots = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    whole = run(1)
    assert same(whole, run(2))
    run(3, out=tmp_path, epochs=1)
    assert same(whole, run(4, out=tmp_path, resume=True))
