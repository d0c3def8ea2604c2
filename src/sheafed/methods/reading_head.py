r"""A head for what neighbours send, beside the one for own latents.

Latents that a map has carried are not distributed as own ones are, so a head that has seen only
its own reads them worse. The reading head starts as a copy of the head and is fitted after
training, when the maps are: on own latents with their labels, and on the pilots' latents of all
neighbours, transported, with the consensus as their label. Encoder and head stay as they are, so
what an agent makes of its own data does not change by it.
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
from sheafed.agents.precision import half_dtype
from sheafed.agents.rng import RngStream
from sheafed.errors import InputError
from sheafed.methods.consensus import FEWEST
from sheafed.seeds import generator

STEPS = 100
BATCH_SIZE = 256
LEARNING_RATE = 0.003
OWN_SAMPLES = 2048
"""How many of its training samples a reading head is fitted on, at most."""


def fit_reading_head(
    agent: Agent, latents: Tensor, targets: Tensor, *, seed: int, steps: int = STEPS
) -> nn.Module | None:
    """Return a copy of an agent's head, fitted to transported latents too.

    The agent's random stream is not drawn from, so its training is the same with and without. None
    if there is nothing to fit: the head has no weights, or there are fewer than `FEWEST` latents.

    Args:
        agent: with a head of classes.
        latents: what neighbours sent, as latents `(n, d)` of the agent.
        targets: class probabilities of them `(n, classes)`.
        seed: of the run.
        steps: of AdamW, each on a batch of own latents and a batch of these.
    """
    head = _copy_head(agent).requires_grad_(True).train()
    weights = list(head.parameters())
    if not weights or len(latents) < FEWEST:
        return None
    optimizer = AdamW(weights, lr=LEARNING_RATE)
    schedule = CosineAnnealingLR(optimizer, steps)
    order = generator(seed, agent.name, "reading head")
    noise = RngStream(agent.device, seed, f"{agent.name} reading head")  # of dropout and the like
    with noise.active(), torch.enable_grad():
        parts = [(latents, targets), *_own_latents(agent, targets.shape[-1])]
        for _ in range(steps):
            losses = []
            for given, wanted in parts:
                rows = torch.randperm(len(given), generator=order)[:BATCH_SIZE].to(given.device)
                losses.append(soft_cross_entropy(agent.apply_head(given[rows], head), wanted[rows]))
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return head.eval().requires_grad_(False)


def as_reading_head(agent: Agent, state: Mapping[str, Any]) -> nn.Module:
    """Return the reading head of an agent whose state this is."""
    head = _copy_head(agent)
    head.load_state_dict(state)
    return head.eval().requires_grad_(False)


def _copy_head(agent: Agent) -> nn.Module:
    """Return a copy of the head, in float32 if it is in less: AdamW's steps would be lost there."""
    if agent.head is None:
        raise InputError(f"agent {agent.name!r} has no head to read with; give it one")
    copied = deepcopy(agent.head)
    return copied if half_dtype(copied) is None else copied.float()


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
