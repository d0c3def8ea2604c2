r"""Gaussian noise on what leaves an agent: each white latent is clipped, then noised.

The unit of privacy is one row: from a release it cannot be told, up to (epsilon, delta), which of
any two values within the bound a pilot's white latent had. See the privacy page of the docs for
what that protects and what it does not.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from math import sqrt
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sheafed.differential_privacy import mu_of
from sheafed.options import Positive, options
from sheafed.seeds import secret_stream


@options
class GaussianNoise:
    r"""The analytic Gaussian mechanism on white latents.

    >>> noise = GaussianNoise(epsilon=4)
    >>> noise.bound(16), round(noise.scale(16), 1)
    (4.0, 8.6)

    Args:
        epsilon: of one release of one latent.
        delta: likewise.
        clip: the bound on a latent's norm over $\sqrt d$, the norm of a white latent: one number
            for agents of all sizes. Longer ones are shortened.
    """

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] = 1e-5
    clip: Positive = 1.0

    @cached_property
    def mu(self) -> float:
        r"""$\mu = \Delta / \sigma$ of one release of one latent."""
        return mu_of(self.epsilon, self.delta)

    def bound(self, dimension: int) -> float:
        """Return the largest norm of a clipped latent."""
        return self.clip * sqrt(dimension)

    def scale(self, dimension: int) -> float:
        r"""Return $\sigma$; replacing a latent moves it by at most twice the bound."""
        return 2 * self.bound(dimension) / self.mu

    def release(self, latents: Tensor, stream: np.random.Generator) -> Tensor:
        """Return latents `(n, d)` clipped and noised."""
        d = latents.shape[-1]
        norms = latents.norm(dim=-1, keepdim=True)
        clipped = latents * (self.bound(d) / norms).clamp(max=1.0)  # a zero row stays: 0 · 1
        noise = torch.from_numpy(stream.standard_normal(tuple(latents.shape)))
        released: Tensor = clipped + self.scale(d) * noise.to(latents)
        return released


def released(
    noise: GaussianNoise | None, latents: Tensor, *, secret: int, name: str, what: str, round: int
) -> Tensor:
    """Return white latents `(n, d)` as they may leave an agent: as they are, or with noise.

    Args:
        noise: None leaves them as they are.
        latents: to release; all neighbours get the same release.
        secret: the agent's own seed, from which the noise follows.
        name: the agent.
        what: which latents these are.
        round: likewise.
    """
    if noise is None:
        return latents
    return noise.release(latents, noise_stream(secret, name, what, round, latents))


def noise_stream(
    secret: int, name: str, what: str, round: int, latents: Tensor
) -> np.random.Generator:
    """Return the noise of one release, which cannot be repeated without the secret.

    It follows from the latents too. A round that is run again after a crash then sends the same
    bytes, or, if the latents have become others, fresh noise: with the old one, the difference of
    the two messages would be that of the latents.
    """
    digest = blake2b(latents.cpu().contiguous().numpy().tobytes(), digest_size=16).hexdigest()
    return secret_stream(secret, name, "noise", what, round, digest)
