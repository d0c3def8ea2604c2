r"""A head for what neighbours send, beside the one for own latents.

Latents that a map has carried are not distributed as own ones are, so a head that has seen only
its own reads them worse. The reading head starts as a copy of a head and is fitted after training,
when the maps are: on own latents with their labels, and on the pilots' latents of all neighbours,
transported, with what neighbours say of them as their label. Encoder and head stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import UNLABELLED, soft_cross_entropy
from sheafed.agents.rng import RngStream
from sheafed.methods.consensus import FEWEST
from sheafed.methods.consensus_head import copy_head
from sheafed.seeds import generator

STEPS = 100
BATCH_SIZE = 256
LEARNING_RATE = 0.003
OWN_WEIGHT = 0.3
"""Of own latents beside those that are read: it is for the latter."""
OWN_SAMPLES = 2048
"""How many of its training samples a reading head is fitted on, at most."""


def fit_reading_head(
    agent: Agent,
    latents: Tensor,
    targets: Tensor,
    *,
    seed: int,
    start: nn.Module | None = None,
    steps: int = STEPS,
) -> nn.Module | None:
    """Return a copy of a head, fitted to transported latents too.

    The agent's random stream is not drawn from, so its training is the same with and without. None
    if there is nothing to fit: the head has no weights, or there are fewer than `FEWEST` latents.

    Args:
        agent: with a head of classes.
        latents: what neighbours sent, as latents `(n, d)` of the agent.
        targets: class probabilities of them `(n, classes)`.
        seed: of the run.
        start: the head, by default the agent's.
        steps: of AdamW, each on a batch of own latents and a batch of these.
    """
    head = copy_head(agent) if start is None else deepcopy(start)
    head.requires_grad_(True).train()
    weights = list(head.parameters())
    if not weights or len(latents) < FEWEST:
        return None
    optimizer = AdamW(weights, lr=LEARNING_RATE)
    schedule = CosineAnnealingLR(optimizer, steps)
    order = generator(seed, agent.name, "reading head")
    noise = RngStream(agent.device, seed, f"{agent.name} reading head")  # of dropout and the like
    with noise.active(), torch.enable_grad():
        own = _own_latents(agent, targets.shape[-1])
        parts = [(1.0, latents, targets), *((OWN_WEIGHT, *part) for part in own)]
        for _ in range(steps):
            losses = []
            for weight, given, wanted in parts:
                rows = torch.randperm(len(given), generator=order)[:BATCH_SIZE].to(given.device)
                scores = agent.apply_head(given[rows], head)
                losses.append(weight * soft_cross_entropy(scores, wanted[rows]))
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return head.eval().requires_grad_(False)


def as_reading_head(agent: Agent, state: Mapping[str, Any]) -> nn.Module:
    """Return the reading head of an agent whose state this is."""
    head = copy_head(agent)
    head.load_state_dict(state)
    return head.eval().requires_grad_(False)


def _own_latents(agent: Agent, classes: int) -> list[tuple[Tensor, Tensor]]:
    """Return latents of own labelled training samples and their class probabilities, if any.

    They are spread evenly over the data.
    """
    samples = agent.data.train
    count = min(len(samples), OWN_SAMPLES)
    latents, labels = agent.encode_samples(samples, torch.arange(count) * len(samples) // count)
    if labels is None:
        return []
    if not labels.is_floating_point():
        known = labels != UNLABELLED
        latents = latents[known.to(latents.device)]
        labels = nn.functional.one_hot(labels[known], classes).to(latents.dtype)
    return [(latents, labels.to(latents))] if len(latents) >= FEWEST else []
