"""Differential privacy of the noise in a training, from one release to the whole transcript."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sheafed.differential_privacy import composed, epsilon_of
from sheafed.methods.sheaf_frl.node import SheafFRLNode


@dataclass(frozen=True)
class PrivacyLoss:
    """The epsilons, at one delta, of what an agent has sent in training."""

    release: float
    """Of one pilot's white latent in one message: the epsilon of `GaussianNoise`."""
    pilot: float
    """Of all releases of the pilot that was sent most often.

    Conditional on everything sent about the other pilots; its influence on them by batch statistics
    and the gluing penalty is not counted.
    """
    agent: float | None
    """Of the whole transcript, with respect to everything about the agent, its data included.

    It bounds the difference between two agents that differ in all latents of all rounds. None with
    distillation: the class probabilities that it sends carry no noise.
    """
    delta: float


def privacy_loss(node: SheafFRLNode, rounds: int) -> PrivacyLoss | None:
    """Return the privacy loss of an agent after some rounds; None if it adds no noise.

    The number of neighbours does not count: all get the same noise, rotated. Rounds that are
    repeated after a crash with other latents are additional releases, which are not counted here.
    """
    method, noise = node.method, node.method.noise
    if noise is None:
        return None
    times = torch.zeros(node.context.pilots.total, dtype=torch.int64)
    rows = 0
    for round in range(0, rounds, method.exchange_every):
        selection = node.pilot_policy.select(round)
        times[selection.indices] += 1
        rows += selection.count
        if node.map_updates.sends_all(round):
            times += 1
            rows += len(times)
    return PrivacyLoss(
        release=noise.epsilon,
        pilot=epsilon_of(composed(noise.mu, int(times.max())), noise.delta),
        agent=None
        if method.distillation is not None
        else epsilon_of(composed(noise.mu, rows), noise.delta),
        delta=noise.delta,
    )
