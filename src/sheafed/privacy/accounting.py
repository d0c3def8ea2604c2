r"""How much privacy the noise of a training has left, from one release to the whole transcript."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sheafed.differential_privacy import composed, epsilon_of
from sheafed.methods.sheaf_frl.node import SheafFRLNode


@dataclass(frozen=True)
class Spent:
    """The epsilons, all at one delta, of what an agent has sent in training."""

    release: float
    """Of one pilot's white latent in one message: what was asked for."""
    pilot: float
    """Of the latents of that pilot that was sent most often, in all its releases.

    Given all that is sent of the other pilots, on which it has an influence by batch statistics
    and the gluing penalty: that is not counted here.
    """
    agent: float | None
    """Of everything about the agent, its training data included, in the whole transcript.

    Two agents that differ in all latents of all rounds differ in no more than this. None with
    class probabilities: they come from a head that no noise covers.
    """
    delta: float


def spent(node: SheafFRLNode, rounds: int) -> Spent | None:
    """Return what an agent's noise amounts to after some rounds; None if it adds none.

    Neighbours do not count: they all get the same noise, only turned. Rounds that were repeated
    after a crash do, if the latents had become others: they are releases of their own.
    """
    method, noise = node.method, node.method.noise
    if noise is None:
        return None
    times = torch.zeros(node.context.pilots.total, dtype=torch.int64)
    rows = 0
    for round in range(0, rounds, method.exchange_every):
        selection = node.policy.select(round)
        times[selection.indices] += 1
        rows += selection.count
        if node.fits.sends_all(round):
            times += 1
            rows += len(times)
    return Spent(
        release=noise.epsilon,
        pilot=epsilon_of(composed(noise.mu, int(times.max())), noise.delta),
        agent=None
        if method.distillation is not None
        else epsilon_of(composed(noise.mu, rows), noise.delta),
        delta=noise.delta,
    )
