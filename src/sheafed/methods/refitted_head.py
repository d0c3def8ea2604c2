"""A head for own data, fitted again after training.

While it trains, a head sees latents of an encoder in training mode, with dropout and the statistics
of batches, and an encoder that changes. A copy that is fitted to own labels once more, to latents
as the agent uses them, classifies own data better, by up to 14 points where data are few and
dropout is strong. A head that also reads what neighbours send may not have the capacity for both;
validation data tell.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.methods.consensus import FEWEST, fit_temperature, validation_scores
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.head_steps import Part, fitting, take_steps
from sheafed.methods.own_offset import own_latents

STANDARD_ERRORS = 2.0
"""By how many of them a difference on validation data is beyond noise."""


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


def refit_if_better(
    agent: Agent, head: nn.Module, refit: Callable[[], nn.Module | None]
) -> nn.Module | None:
    """Return the agent's head, fitted again, if it predicts validation data better than another.

    That is, if it has the smaller cross-entropy, each at its best temperature, by more than
    `STANDARD_ERRORS`: validation data may be few, and the other head knows more. Without labelled
    validation data nothing is fitted: None.

    Args:
        agent: with a head of classes.
        head: the other one, in evaluation mode.
        refit: returns the refitted head, if there is one.
    """
    before = _validation_losses(agent, head)
    refitted = None if before is None else refit()
    after = None if refitted is None else _validation_losses(agent, refitted)
    if before is None or after is None or len(before) < FEWEST:
        return None
    gain = before - after
    beyond_noise = gain.mean() > STANDARD_ERRORS * gain.std() / len(gain) ** 0.5
    return refitted if beyond_noise else None


def _validation_losses(agent: Agent, head: nn.Module) -> Tensor | None:
    """Return the cross-entropy of each validation sample, at the temperature of least loss."""
    found = validation_scores(agent, head)
    if found is None:
        return None
    scores, labels = found
    scores = scores.double() / fit_temperature(scores, labels)
    if labels.is_floating_point():
        labels = labels.double()
    return nn.functional.cross_entropy(scores, labels, reduction="none")
