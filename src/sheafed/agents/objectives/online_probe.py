"""An online probe: labels train the head, but never the encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.objective import Objective
from sheafed.agents.objectives.supervised import head_and_targets, label_loss
from sheafed.agents.samples import Batch

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


class OnlineProbe(nn.Module):
    """Train the encoder by an objective without labels, and the head by cross-entropy.

    The head sees the latents, in evaluation mode, as constants: no label reaches the encoder. Under
    consensus distillation the encoder learns the classes of pilots that agents agree on, to which
    this one's head contributes, and its own labels as little as elsewhere.

    >>> from sheafed.models import mlp
    >>> from sheafed.agents.objectives import VICReg
    >>> objective = OnlineProbe(VICReg(mlp((32, 32), inputs=(16,))))

    Args:
        objective: of the encoder.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        head, targets = head_and_targets(agent, batch)
        loss = self.objective(agent, batch)
        with agent.inference(), torch.no_grad():
            latents = agent.encode(batch.inputs)
        return loss + label_loss(agent, head(latents), targets)
