"""Small networks of agents whose runs take a fraction of a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

from sheafed.agents import objectives, paper_optimizer
from sheafed.agents.agent import Agent
from sheafed.agents.lr_schedules import follow
from sheafed.channels import Channel
from sheafed.methods import (
    SWBN,
    ComFed,
    ConsensusDistillation,
    Distillation,
    DualAscent,
    MapPolicy,
    Method,
    NonCooperative,
    SheafFMTL,
    SheafFRL,
    WarmUp,
)
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Network, train

FEATURES, CLASSES, PILOTS = 6, 3, 24
EDGES = [("ada", "bob"), ("bob", "cyd")]
RESULTS = ("metrics.jsonl", "last.safetensors", "best.safetensors")

Built = TypeVar("Built")

METHODS: dict[str, Callable[[], Method]] = {
    "distillation": lambda: SheafFRL(
        penalty=DualAscent(tolerance=0.1, step=0.5, largest=1.0),
        pilots_per_round=8,
        distillation=Distillation(confidence=0.3),
    ),
    "rarely": lambda: SheafFRL(
        pilots_per_round=8, distillation=Distillation(confidence=0.3), exchange_every=3
    ),
    "strict": lambda: SheafFRL(
        penalty=WarmUp(0.2, rounds=9),
        privacy="strict",
        maps=MapPolicy(every=2, source="all"),
        pilots_per_round=9,
        whitening=SWBN(),
        exchange_every=2,
        quantisation="int8",
    ),
    "compressed": lambda: SheafFRL(
        edge_dim=2, pilots_per_round=8, channel=Channel(snr_db=15, bits=6)
    ),
    "consensus": lambda: ConsensusDistillation(confidence=0.4, exchange_every=2),
    "alone": lambda: NonCooperative(whitening="private"),
    "strict maps": lambda: NonCooperative(privacy="strict"),
    "noisy": lambda: NonCooperative(channel=Channel(snr_db=10, erasure=0.1)),
    "parameters": lambda: SheafFMTL(penalty=1e-3, gamma=0.1, every=2),
    "projections": lambda: ComFed(penalty=0.5, projection=3),
}
SLOW: dict[str, Callable[[], Method]] = {
    "strict consensus": lambda: ConsensusDistillation(
        confidence=0.4, exchange_every=2, privacy="strict"
    )
}
"""Too slow for tests of every method."""
TWO = ["strict", "alone"]
"""The methods on which properties that do not depend on the method are tried: one that exchanges
in some rounds and has every kind of state, and one that is aligned after training."""


def seeded(seed: int, build: Callable[[], Built]) -> Built:
    """Build something whose initial weights follow from a seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def samples(count: int, seed: int, features: int = FEATURES) -> tuple[Tensor, Tensor]:
    """Return inputs around the centre of their class, and the classes."""
    stream = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (count,), generator=stream)
    centres = 1.5 * torch.randn(CLASSES, features, generator=torch.Generator().manual_seed(99))
    return centres[targets] + torch.randn(count, features, generator=stream), targets


def splits(count: int, seed: int, features: int = FEATURES) -> dict[str, Any]:
    return {
        "train": samples(count, seed, features),
        "validation": samples(19, seed + 1, features),
        "test": samples(23, seed + 2, features),
    }


def pilots() -> PilotSet:
    return PilotSet(samples(PILOTS, 77)[0])


def simple_agent(name: str, dimension: int = 3, seed: int = 0, **options: Any) -> Agent:
    """Return an agent of one linear layer and a linear head."""
    encoder = seeded(seed, lambda: nn.Linear(FEATURES, dimension))
    head = seeded(seed + 1, lambda: nn.Linear(dimension, CLASSES))
    given = {"data": splits(20, seed), "batch_size": 5, "head": head, "optimizer": paper_optimizer}
    return Agent(name, encoder, **(given | options))


def agents() -> list[Agent]:
    """Return three that differ in everything: layers, sizes, optimisers, data, batches."""
    ada = Agent(
        "ada",
        seeded(
            1,
            lambda: nn.Sequential(
                nn.Linear(FEATURES, 8),
                nn.BatchNorm1d(8),
                nn.ReLU(),
                nn.Dropout(0.3),
                nn.Linear(8, 5),
            ),
        ),
        seeded(2, lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))),
        data=splits(50, 10),
        optimizer=lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
        batch_size=8,
    )
    bob = Agent(
        "bob",
        seeded(
            3,
            lambda: nn.Sequential(
                nn.Linear(FEATURES, 7), nn.Tanh(), nn.Dropout(0.2), nn.Linear(7, 4)
            ),
        ),
        seeded(4, lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(4, CLASSES))),
        data=splits(41, 20),
        optimizer=lambda p: Adam(p, lr=0.01),
        batch_size=7,
    )
    cyd = Agent(
        "cyd",
        seeded(5, lambda: nn.Linear(FEATURES, 3)),
        seeded(6, lambda: nn.Linear(3, CLASSES)),
        data=splits(37, 30),
        optimizer=lambda p: SGD(p, lr=0.05, momentum=0.8, nesterov=True),
        batch_size=6,
        max_grad_norm=0.5,
        scheduler=follow(lambda step: 0.05 / (1 + 0.1 * step)),
    )
    return [ada, bob, cyd]


def one_sample() -> list[Agent]:
    """Return three of which the last has a single training sample."""
    data = {**splits(20, 1), "train": samples(1, 1)}
    others = [simple_agent(name, 4, k, batch_size=20) for k, name in enumerate(("ada", "bob"))]
    return [*others, simple_agent("cyd", data=data)]


def fifteen() -> list[Agent]:
    return [simple_agent(f"agent{k}", 2 + k % 4, seed=3 * k) for k in range(15)]


def alike() -> list[Agent]:
    """Return enough agents of one structure for two processes in which they step together."""
    return [simple_agent(f"agent{k:02}", seed=3 * k) for k in range(32)]


def regression_samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, FEATURES, generator=stream)
    return inputs, inputs[:, 0] - 2 * inputs[:, 1] + 0.1 * torch.randn(count, generator=stream)


def regressor(name: str, dimension: int = 4, seed: int = 0, **options: Any) -> Agent:
    data = {
        split: regression_samples(count, seed + k)
        for k, (split, count) in enumerate({"train": 40, "validation": 9, "test": 11}.items())
    }
    return Agent(
        name,
        seeded(seed, lambda: nn.Linear(FEATURES, dimension)),
        **{
            "head": seeded(seed + 1, lambda: nn.Linear(dimension, 1)),
            "data": data,
            "objective": objectives.mean_squared_error,
            "batch_size": 8,
            **options,
        },
    )


def regressors() -> list[Agent]:
    """Return three that predict a number and are judged by two metrics."""
    metrics = {"ada": "mse", "bob": "r2", "cyd": "mse"}
    return [regressor(name, 3 + k, 5 * k, metric=m) for k, (name, m) in enumerate(metrics.items())]


FEDERATIONS: dict[str, tuple[Callable[[], list[Agent]], list[tuple[str, str]]]] = {
    "three": (agents, EDGES),
    "regressors": (regressors, EDGES),
    "one sample": (one_sample, EDGES),
    "alike": (
        alike,
        [(f"agent{k:02}", f"agent{(k + step) % 32:02}") for k in range(32) for step in (1, 5)],
    ),
    "fifteen": (
        fifteen,
        [(f"agent{k}", f"agent{(k + step) % 15}") for k in range(15) for step in (1, 4)],
    ),
}


def start(
    case: str, out: Path | None = None, epochs: int = 4, federation: str = "three", **options: Any
) -> Network:
    """Train by a method above, with agents as they were born: the three on a line, or others."""
    given = {"checkpoint_every": 3, "seed": 7, "rounds_per_epoch": "smallest", **options}
    team, edges = FEDERATIONS[federation]
    method = (METHODS | SLOW)[case]()
    return train(team(), edges, method, pilots(), epochs=epochs, out=out, **given)


def results(out: Path) -> dict[str, bytes]:
    """Return the bytes of the files that no interruption may change."""
    return {name: (out / name).read_bytes() for name in RESULTS}


def weights(run: Network) -> dict[str, Tensor]:
    return {
        f"{name} {part} {key}": value.clone()
        for name, agent in run.agents.items()
        for part, module in (("encoder", agent.encoder), ("head", agent.head))
        if module is not None
        for key, value in module.state_dict().items()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Compare bit by bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def normal_latents(dimension: int) -> Tensor:
    """Return latents of any agent with this latent size."""
    return torch.randn(9, dimension, generator=torch.Generator().manual_seed(5))
