"""Steps that fit a copy of a head to latents and labels, after training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import soft_cross_entropy
from sheafed.agents.rng import RngStream
from sheafed.seeds import generator

STEPS = 100
BATCH_SIZE = 256
LEARNING_RATE = 0.003
OFFSET_LEARNING_RATE = 0.03
"""An offset starts at nothing, while the head has learnt its weights before."""


class Part(NamedTuple):
    """Latents that a head is fitted to; each step takes a batch of every part."""

    weight: float
    latents: Tensor
    """`(n, d)`"""
    labels: Tensor
    """Class probabilities `(n, classes)`."""
    offset: Tensor
    """The row of the offsets that belongs to each latent, `(n,)`."""


@contextmanager
def fitting(agent: Agent, seed: int, purpose: str) -> Iterator[torch.Generator]:
    """Draw from random streams of a purpose's own, and yield that of the order of samples.

    An agent's training is the same with and without what is fitted here.
    """
    noise = RngStream(agent.device, seed, f"{agent.name} {purpose}")  # of dropout and the like
    with noise.active(), torch.enable_grad():
        yield generator(seed, agent.name, purpose)


def take_steps(
    agent: Agent,
    head: nn.Module,
    offsets: Tensor,
    parts: Sequence[Part],
    order: torch.Generator,
    steps: int = STEPS,
) -> None:
    """Fit a head and the offsets of its scores by AdamW, with a learning rate that falls to 0.

    Args:
        agent: whose latents they are.
        head: with weights; they are changed.
        offsets: `(m, classes)`; changed if they require a gradient.
        parts: what is learnt.
        order: the stream that draws batches.
        steps: how many.
    """
    head.requires_grad_(True).train()
    groups: list[dict[str, Any]] = [{"params": list(head.parameters())}]
    if offsets.requires_grad:
        groups.append({"params": [offsets], "lr": OFFSET_LEARNING_RATE, "weight_decay": 0.0})
    optimizer = AdamW(groups, lr=LEARNING_RATE)
    schedule = CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        losses = []
        for weight, latents, labels, offset in parts:
            rows = torch.randperm(len(latents), generator=order)[:BATCH_SIZE].to(latents.device)
            scores = agent.apply_head(latents[rows], head) + offsets[offset[rows]]
            losses.append(weight * soft_cross_entropy(scores, labels[rows]))
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
