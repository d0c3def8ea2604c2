"""A probe: the head learns the labels, the encoder does without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.objective import Objective
from sheafed.agents.objectives.supervised import head_and_targets
from sheafed.agents.samples import Batch

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


class OnlineProbe(nn.Module):
    """Train the encoder by an objective that needs no labels, and the head by cross-entropy.

    The head sees the latents, encoded deterministically, as constants: no label reaches the
    encoder.

    Args:
        objective: of the encoder.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        """Return the sum of both losses."""
        head, targets = head_and_targets(agent, batch)
        loss = self.objective(agent, batch)
        with agent.inference(), torch.no_grad():
            latents = agent.encode(batch.inputs)
        return loss + nn.functional.cross_entropy(head(latents), targets)
