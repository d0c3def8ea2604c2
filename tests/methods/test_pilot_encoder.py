"""Pilots are encoded again only when the weights have changed."""

import pytest
import torch

from sheafed import Agent, PilotSet
from sheafed.methods.pilot_encoder import PilotEncoder


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


def agent() -> Agent:
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    data = {"train": (torch.randn(8, 3), torch.zeros(8, dtype=torch.long))}
    return Agent("ada", encoder, torch.nn.Linear(4, 2), data=data)


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
