"""Fitting a reading head: after training, when the maps are fitted.

Latents that a map has carried are not distributed as own ones are, so a head that has seen only
its own reads them worse. The reading head starts as a copy of a head and learns own latents with
their labels, and the pilots' latents of all neighbours, transported, with what each says of them as
their label. Encoder and head stay as they are.
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
from sheafed.agents.objectives import soft_cross_entropy
from sheafed.agents.rng import RngStream
from sheafed.methods.consensus import FEWEST
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.own_offset import Labelled, own_latents
from sheafed.methods.reading_head import ReadingHead
from sheafed.seeds import generator

STEPS = 100
BATCH_SIZE = 256
LEARNING_RATE = 0.003
OFFSET_LEARNING_RATE = 0.03
"""An offset starts at nothing, while the head has learnt its weights before."""
OWN_WEIGHT = 0.3
"""Of own latents beside those that are read: it is for the latter."""


def fit_reading_head(
    agent: Agent,
    received: Mapping[str, Labelled],
    *,
    seed: int,
    start: nn.Module | None = None,
    steps: int = STEPS,
    sender_offsets: bool = True,
) -> ReadingHead | None:
    """Return a copy of a head, fitted to transported latents too, with an offset for each sender.

    The agent's random stream is not drawn from, so its training is the same with and without. None
    if there is nothing to fit: the head has no weights, or there are fewer than `FEWEST` latents.

    Args:
        agent: with a head of classes.
        received: what neighbours sent, by sender, as latents of the agent, and their labels.
        seed: of the run.
        start: the head, by default the agent's.
        steps: of AdamW, each on a batch of own latents and a batch of these.
        sender_offsets: whether there are offsets, or one head for all senders.
    """
    head = copy_head(agent) if start is None else deepcopy(start)
    head.requires_grad_(True).train()
    weights = list(head.parameters())
    if not weights or sum(len(latents) for latents, _ in received.values()) < FEWEST:
        return None
    classes = next(iter(received.values()))[1].shape[-1]
    order = generator(seed, agent.name, "reading head")
    noise = RngStream(agent.device, seed, f"{agent.name} reading head")  # of dropout and the like
    with noise.active(), torch.enable_grad():
        own = own_latents(agent, classes)
        senders = [*received, *([agent.name] if own else [])]
        like = next(iter(received.values()))[0]
        offsets = nn.Parameter(torch.zeros(len(senders), classes, device=like.device))
        groups: list[dict[str, Any]] = [{"params": weights}]
        if sender_offsets:
            groups.append({"params": [offsets], "lr": OFFSET_LEARNING_RATE, "weight_decay": 0.0})
        optimizer = AdamW(groups, lr=LEARNING_RATE)
        schedule = CosineAnnealingLR(optimizer, steps)
        parts = [(1.0, *_joined(list(received.values()), first=0))]
        parts += [(OWN_WEIGHT, *_joined(own, first=len(received)))] if own else []
        for _ in range(steps):
            losses = []
            for weight, latents, wanted, sender in parts:
                rows = torch.randperm(len(latents), generator=order)[:BATCH_SIZE]
                rows = rows.to(latents.device)
                scores = agent.apply_head(latents[rows], head) + offsets[sender[rows]]
                losses.append(weight * soft_cross_entropy(scores, wanted[rows]))
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    # Copies: files and exports want no views of one tensor.
    found = {j: row.clone() for j, row in zip(senders, offsets.detach(), strict=True)}
    return ReadingHead(head, found if sender_offsets else {})


def _joined(parts: list[Labelled], *, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return all latents, all labels, and the number of each one's part, counted from `first`."""
    latents, labels = (torch.cat(list(each)) for each in zip(*parts, strict=True))
    sizes = torch.tensor([len(part[0]) for part in parts])
    numbers = torch.arange(first, first + len(parts)).repeat_interleave(sizes)
    return latents, labels, numbers.to(latents.device)
