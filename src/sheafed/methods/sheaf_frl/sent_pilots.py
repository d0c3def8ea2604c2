"""An agent's own latents of the pilots in an exchange: what it has, and what leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sheafed.methods.consensus import Consensus, calibrated_probabilities
from sheafed.methods.node import NodeContext
from sheafed.methods.predictions import predict_proba
from sheafed.methods.sheaf_frl.gaussian_noise import released
from sheafed.methods.whitening import WhiteningLayer

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.method import SheafFRL


@dataclass(frozen=True)
class SentPilots:
    own: Tensor
    """White, `(K, d)`, with the encoder's graph if there is a penalty."""
    own_all: Tensor | None
    """Of all pilots, in exchanges that send them."""
    released: Tensor
    """As they may leave: with noise, if the method adds any."""
    released_all: Tensor | None
    probabilities: Tensor | None
    """The own head's class probabilities, `(K, classes)`, if they are sent."""
    outputs: Tensor | None
    """The numbers `(K, k)` that a head of regression predicts, likewise."""


def release(
    method: SheafFRL,
    context: NodeContext,
    whitening: WhiteningLayer,
    round: int,
    raw: Tensor,
    own: Tensor,
    own_all: Tensor | None,
    *,
    teaches: bool,
) -> SentPilots:
    """Add noise, if the method has any, and what the head predicts of what leaves.

    Args:
        method: the options.
        context: of the agent.
        whitening: likewise.
        round: of the exchange.
        raw: latents of the round's pilots, `(K, d)`.
        own: the same, white.
        own_all: white latents of all pilots, if they are sent.
        teaches: whether predictions are sent.
    """
    agent = context.agent
    noised = partial(released, method.noise, secret=context.secret, name=agent.name, round=round)
    leaving = noised(own.detach(), what="latents")
    leaving_all = None if own_all is None else noised(own_all, what="all")
    probabilities = outputs = None
    if teaches:
        # With noise, predictions of the exact latents would tell more than what leaves does.
        read = raw.detach() if method.noise is None else whitening.eval().colour(leaving)
        with agent.inference(), torch.no_grad():
            if agent.regression:
                outputs = agent.apply_head(read).reshape(len(read), -1)
            elif isinstance(method.distillation, Consensus):
                # A temperature fitted to private data would tell more than what leaves, too.
                calibrate = method.distillation.calibrate and method.noise is None
                probabilities = calibrated_probabilities(agent, read, calibrate=calibrate)
            else:
                probabilities = predict_proba(agent.apply_head, read)
    return SentPilots(own, own_all, leaving, leaving_all, probabilities, outputs)
