"""Fitting a reading head: after training, when the maps are fitted.

Latents that a map has carried are not distributed as own ones are, so a head that has seen only
its own reads them worse. The reading head starts as a copy of a head and learns own latents with
their labels, and the pilots' latents of all neighbours, transported, with what each says of them as
their label. Encoder and head stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.methods.consensus import FEWEST
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.head_steps import STEPS, Part, fitting, take_steps
from sheafed.methods.own_offset import Labelled, own_latents
from sheafed.methods.reading_head import ReadingHead

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
    rows = sum(len(latents) for latents, _ in received.values())
    if not list(head.parameters()) or rows < FEWEST:
        return None
    like, first_labels = next(iter(received.values()))
    classes = first_labels.shape[-1]
    with fitting(agent, seed, "reading head") as order:
        own = own_latents(agent, classes)
        senders = [*received, *([agent.name] if own else [])]
        offsets = torch.zeros(len(senders), classes, device=like.device)
        parts = [Part(1.0, *_joined(list(received.values()), first=0))]
        parts += [Part(OWN_WEIGHT, *_joined(own, first=len(received)))] if own else []
        take_steps(agent, head, offsets.requires_grad_(sender_offsets), parts, order, steps)
    # Copies: files and exports want no views of one tensor.
    found = {j: row.clone() for j, row in zip(senders, offsets.detach(), strict=True)}
    return ReadingHead(head, found if sender_offsets else {})


def _joined(parts: list[Labelled], *, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return all latents, all labels, and the number of each one's part, counted from `first`."""
    latents, labels = (torch.cat(list(each)) for each in zip(*parts, strict=True))
    sizes = torch.tensor([len(part[0]) for part in parts])
    numbers = torch.arange(first, first + len(parts)).repeat_interleave(sizes)
    return latents, labels, numbers.to(latents.device)
