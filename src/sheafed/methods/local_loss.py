"""An agent's own objective, checked before the agent is trained on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.checks import explained
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, NonFiniteError, ShapeError
from sheafed.tensor_tree import count_non_finite, tree_length
from sheafed.vectorized import OwnPass


def local_loss(agent: Agent, batch: Batch, round: int) -> Tensor:
    """Compute the objective on a batch, and check it."""
    with explained(
        f"agent {agent.name!r}, round {round}: its objective fails on a batch of "
        f"{tree_length(batch.inputs)} samples"
    ):
        loss = agent.objective(agent, batch)
    return checked_loss(agent, batch, loss, round)


def checked_loss(agent: Agent, batch: Batch, loss: Tensor, round: int) -> Tensor:
    """Return the objective on a batch; raise if it is not finite or has no gradient."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ShapeError(
            f"agent {agent.name!r}: its objective must return a scalar tensor, got {found}; take "
            "the mean over the batch"
        )
    if not bool(torch.isfinite(loss)):
        bad, total = count_non_finite(batch.inputs)
        held = f"{bad} non-finite of {total} inputs"
        if batch.targets is not None and batch.targets.is_floating_point():
            wrong, number = count_non_finite(batch.targets)
            bad, held = bad + wrong, f"{held} and {wrong} of {number} targets"
        raise NonFiniteError(
            f"agent {agent.name!r}, round {round}: the objective is {loss.item()}; its batch holds "
            f"{held}; "
            + ("clean the data" if bad else "lower the learning rate or clip the gradient")
        )
    if not loss.requires_grad:
        raise InputError(
            f"agent {agent.name!r}: its objective depends on nothing that is trained; unfreeze its "
            "encoder or head, or take a method that leaves it as it is, SheafFRL or "
            "NonCooperative, and freeze both"
        )
    return loss


def check_losses(agents: Sequence[Agent], own: OwnPass, round: int) -> None:
    """Check the objectives of several agents on their batches, as `checked_loss` does one."""
    losses = own.losses
    if losses.requires_grad and bool(torch.isfinite(losses).all()):
        return
    for k, (agent, loss) in enumerate(zip(agents, losses, strict=True)):
        checked_loss(agent, own.batch.of(k), loss, round)


def loss_and_latents(agent: Agent, batch: Batch, round: int) -> tuple[Tensor, Tensor]:
    """Return the objective on a batch and the latents `(n, d)` it computed.

    The batch is encoded once, by the objective. Where that does not give a latent per sample that
    a gradient can go back from, they are encoded beside it; see `encode_beside`.
    """
    loss, latents = loss_and_own_latents(agent, batch, round)
    return loss, encode_beside(agent, batch) if latents is None else latents


def loss_and_own_latents(agent: Agent, batch: Batch, round: int) -> tuple[Tensor, Tensor | None]:
    """Return the objective on a batch and the latents `(n, d)` it computed, if it did.

    There are none from an objective without `agent.encode`, or with two views of each input.
    """
    with agent.record_latents() as encoded:
        loss = local_loss(agent, batch, round)
    for latents in encoded:
        if len(latents) == tree_length(batch.inputs) and (latents.requires_grad or agent.frozen):
            return loss, latents
    return loss, None


def encode_beside(agent: Agent, batch: Batch) -> Tensor:
    """Return latents of a batch, deterministically, so that no random number is drawn.

    What is computed of them must go backward before the next pass in training mode, see
    `Agent.zero_grad`.
    """
    with agent.inference():
        return agent.encode(batch.inputs)
