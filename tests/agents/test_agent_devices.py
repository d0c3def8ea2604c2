"""Agents on another device: objectives, inputs of several tensors, frozen encoders."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, PilotSet, SheafFRL, train
from sheafed.agents.objectives import (
    Augmentation,
    Autoencoding,
    Objective,
    OnlineProbe,
    PseudoLabels,
    SimCLROptions,
    VICRegOptions,
    hide_labels,
    mean_squared_error,
)
from sheafed.methods.pilot_encoder import PilotEncoder
from sheafed.models import decoder
from tests.helpers.devices import STAND_IN, using
from tests.helpers.federations import seeded

SIDE, CLASSES, LATENT = 4, 3, 5
SHAPE = (1, SIDE, SIDE)

# Noise would be drawn on the device, all else is drawn on the CPU.
QUIET = Augmentation(noise=0)
OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "autoencoding": lambda: Autoencoding(decoder(LATENT, SHAPE)),
    "vicreg": lambda: OnlineProbe(
        VICRegOptions(widths=(6,), augmentation=QUIET).build(LATENT, SHAPE)
    ),
    "simclr": lambda: SimCLROptions(widths=(6,), augmentation=QUIET).build(LATENT, SHAPE),
    "pseudo-labels": lambda: PseudoLabels(confidence=0.4, augmentation=QUIET),
    "squared error": lambda: mean_squared_error,
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    with using(STAND_IN, monkeypatch) as found:
        yield found


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def steps(place: Any, kind: str) -> list[float]:
    """The losses of three steps."""
    labels = torch.arange(20) % CLASSES
    targets = {
        "pseudo-labels": hide_labels(labels, 0.5, torch.Generator().manual_seed(0)),
        "squared error": normal(1, 20, CLASSES),
    }.get(kind, labels)
    encoder = seeded(2, lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, LATENT)))
    agent = Agent(
        "ada",
        encoder,
        seeded(3, lambda: nn.Linear(LATENT, CLASSES)),
        data=(normal(4, 20, *SHAPE), targets),
        objective=seeded(5, OBJECTIVES[kind]),
        batch_size=8,
        device=place,
    )
    losses = []
    for _ in range(3):
        with agent.rng_context():
            loss = agent.objective(agent, agent.next_batch())
            agent.optimizer_step(loss)
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_objectives_do_not_depend_on_devices(kind: str, device: torch.device) -> None:
    assert steps(device, kind) == steps("cpu", kind)


class TwoInputs(nn.Module):
    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(7, 4), nn.Linear(4, dimension)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        return self.layer((self.words(words) * mask[..., None]).sum(1))


def test_inputs_of_several_tensors_move(device: torch.device) -> None:
    def network(place: Any) -> dict[str, Any]:
        words = torch.arange(60).reshape(20, 3) % 7
        inputs = {"words": words, "mask": (words > 1).float()}
        data = (inputs, torch.arange(20) % CLASSES)
        agents = []
        for name, d in (("ada", 3), ("bob", 2)):
            encoder = seeded(d, partial(TwoInputs, d))
            head = seeded(1, partial(nn.Linear, d, CLASSES))
            splits = {"train": data, "test": data}
            agents.append(Agent(name, encoder, head, data=splits, batch_size=10, device=place))
        return train(agents, [("ada", "bob")], SheafFRL(), inputs, epochs=1).history.last

    assert network(device) == network("cpu")


def test_a_frozen_encoder_keeps_the_latents_of_its_pilots_on_its_device(
    device: torch.device,
) -> None:
    pilots = normal(1, 6, 4)
    agent = Agent("ada", nn.Linear(4, 2), data=pilots, frozen=True, device=device)
    chosen = torch.tensor([4, 1])
    found = PilotEncoder(agent, PilotSet(pilots))(chosen)
    assert found.device == device
    assert torch.equal(found, agent.encode(pilots[chosen]))
