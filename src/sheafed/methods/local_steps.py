"""What agents do alike in a round, checked by name: encode pilots, take the loss of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, NonFiniteError


def encode_pilots(agent: Agent, inputs: Tensor, round: int | None) -> Tensor:
    """Return the latents of pilots, encoded deterministically; differentiable in the encoder."""
    with agent.inference():
        if torch.is_grad_enabled():
            latents = agent.encode(inputs)
        else:  # in parts: thousands of images at once would need gigabytes
            latents = torch.cat([agent.encode(x) for x in torch.split(inputs, ENCODING_BATCH_SIZE)])
    if not bool(torch.isfinite(latents).all()):
        when = "" if round is None else f", round {round}"
        bad = int((~torch.isfinite(inputs)).sum())
        raise NonFiniteError(
            f"agent {agent.name!r}{when}: the encoder gives non-finite latents for the pilots, "
            f"whose inputs hold {bad} non-finite of {inputs.numel()} values; "
            + ("clean the pilots" if bad else "lower the learning rate or clip the gradient")
        )
    return latents


def local_loss(agent: Agent, round: int) -> Tensor:
    """Return an agent's objective on its next batch."""
    batch = agent.next_batch()
    loss = agent.objective(agent, batch)
    check_loss(agent, loss, round, batch)
    return loss


def check_loss(agent: Agent, loss: Tensor, round: int, batch: Batch) -> None:
    """Raise on a loss that is not finite, or that nothing can be trained by."""
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
