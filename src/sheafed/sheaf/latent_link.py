r"""A latent's way from a sender's encoder to a receiver's head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Stage = Callable[[Tensor], Tensor]
"""From latents `(n, d)` to latents `(n, d')`, row by row."""


def identity(latents: Tensor) -> Tensor:
    return latents


@dataclass(frozen=True)
class LatentLink:
    r"""Whiten, carry from agent to agent, colour: $z \mapsto C_i(T_{ij} W_j(z))$.

    The sender whitens and applies its endpoint of the edge, a channel may add noise, the receiver
    applies its own endpoint and colours. Each agent has its half: a sending half ends with white
    latents on the wire, a receiving half starts with them, and `then` joins the two. Stages are
    called, not copied: a link between live nodes follows their maps.

    Args:
        whiten: from the sender's latents to its white ones.
        stages: what happens to white latents on the way, in order.
        colour: from the receiver's white latents to those that its head reads.

    >>> import torch
    >>> sending = LatentLink(whiten=lambda z: z - 1, stages=(lambda white: white.flip(-1),))
    >>> receiving = LatentLink(colour=lambda white: 2 * white)
    >>> link = sending.then(receiving)
    >>> link(torch.tensor([[1.0, 3.0]]))
    tensor([[4., 0.]])
    >>> link.carry(torch.tensor([[0.0, 2.0]]))
    tensor([[2., 0.]])
    """

    whiten: Stage = identity
    stages: tuple[Stage, ...] = ()
    colour: Stage = identity

    def __call__(self, latents: Tensor) -> Tensor:
        """Return latents `(n, d)` of the sender as the receiver's head reads them, `(n, d')`."""
        return self.colour(self.carry(self.whiten(latents)))

    def carry(self, white: Tensor) -> Tensor:
        """Return white latents of the sender in the receiver's white space."""
        for stage in self.stages:
            white = stage(white)
        return white

    def then(self, following: LatentLink) -> LatentLink:
        """Return this link continued by another one.

        At the joint nothing is coloured and whitened again: the two cancel.
        """
        return LatentLink(self.whiten, (*self.stages, *following.stages), following.colour)
