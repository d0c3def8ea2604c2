"""An agent's own objective, checked before the agent is trained on it."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, NonFiniteError


def local_loss(agent: Agent, batch: Batch, round: int) -> Tensor:
    """Return the objective on a batch; raise if it is not finite or has no gradient."""
    loss = agent.objective(agent, batch)
    if not bool(torch.isfinite(loss)):
        inputs = batch.inputs
        bad = int((~torch.isfinite(inputs)).sum()) if inputs.is_floating_point() else 0
        raise NonFiniteError(
            f"agent {agent.name!r}, round {round}: the objective is {loss.item()}; its batch holds "
            f"{bad} non-finite of {inputs.numel()} inputs; "
            + ("clean the data" if bad else "lower the learning rate or clip the gradient")
        )
    if not loss.requires_grad:
        raise InputError(
            f"agent {agent.name!r}: its objective depends on nothing that is trained; unfreeze its "
            "encoder or head, or take a method that leaves it as it is, SheafFRL or "
            "NonCooperative, and freeze both"
        )
    return loss
