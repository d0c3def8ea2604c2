r"""ZCA whitening that follows latents while they are trained.

The value of $\mu$ and $\Sigma$ is a running one, steadier than a small batch; their derivative is
that of the batch. So a penalty on white latents cannot gain by shrinking the latents, and yet
no single batch decides the reference.
"""

import torch
from torch import Tensor

from sheafed.linalg.running import RunningMoments, batch_moments
from sheafed.linalg.whitening import inverse_sqrt_and_sqrt, shrink


class RunningZCA(RunningMoments):
    r"""Whiten latents `(n, d)` by $\Sigma^{-1/2}$ of their running, shrunk covariance.

    It commutes with rotations of the latent space, unlike `StochasticWhitening`, which
    standardises every coordinate by itself.

    Args:
        dimension: d.
        momentum: the weight of one batch in the running moments (see `RunningMoments`).
        shrinkage: of the covariance towards a multiple of the identity. It must be above 0 where
            the first batches have fewer rows than dimensions.
    """

    def __init__(self, dimension: int, momentum: float = 0.05, shrinkage: float = 0.1) -> None:
        super().__init__(dimension, momentum, shrinkage)
        self._roots: tuple[tuple[int, int], Tensor, Tensor] | None = None

    def forward(self, z: Tensor) -> Tensor:
        """Whiten a batch; in training mode also learn from it."""
        self.check("latents", z)
        if not self.training:
            whitener, _ = self._running_roots()
            return (z - self.running_mean) @ whitener
        mean, _, covariance = batch_moments(z)
        self.follow(mean, covariance)
        mean = self.running_mean + (mean - mean.detach())
        covariance = self.running_covariance + (covariance - covariance.detach())
        whitener, _ = inverse_sqrt_and_sqrt(shrink(covariance, self.shrinkage))
        return (z - mean) @ whitener

    @torch.no_grad()
    def fit(self, z: Tensor) -> None:
        """Take the moments from these latents alone; what was learnt before is gone."""
        self.check("latents", z)
        mean, _, covariance = batch_moments(z)
        self.running_mean.copy_(mean)
        self.running_covariance.copy_(covariance)
        self.batches += 1

    def colour(self, u: Tensor) -> Tensor:
        """Undo inference-mode whitening: `colour(whiten(z)) == z`."""
        self.check("white latents", u)
        _, colourer = self._running_roots()
        return u @ colourer + self.running_mean

    @torch.no_grad()
    def _running_roots(self) -> tuple[Tensor, Tensor]:
        covariance = self.running_covariance
        current = (id(covariance), covariance._version)  # changed in place, or replaced
        if self._roots is None or self._roots[0] != current:
            self._roots = (current, *inverse_sqrt_and_sqrt(shrink(covariance, self.shrinkage)))
        return self._roots[1:]
