"""Small agents whose heads predict a number."""

from typing import Any

import torch
from torch import Tensor, nn

from sheafed.agents import Agent, objectives
from tests.helpers.federations import FEATURES, seeded


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
