r"""Stochastic whitening batch normalisation (SWBN, zhang2021stochastic).

$u = W D^{-1/2} (z - \mu)$. The standardisation ($\mu$ and the variances $D$) comes from the batch
and is differentiated, so white latents do not follow the scale of the latents. The decorrelating
matrix $W$ tracks the running correlation $C$ outside autograd, by one Newton-Schulz step of
$W C W^\top \to I$ per batch. There is no learnable scale.
"""

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.linalg.decompositions import solve
from sheafed.linalg.running_moments import RunningMoments, batch_moments


class StochasticWhitening(RunningMoments):
    """Whiten latents `(n, d)`: batch statistics in training mode, else running ones.

    >>> layer = StochasticWhitening(3)
    >>> z = torch.randn(50, 3)
    >>> layer.fit(z)
    >>> torch.allclose(layer.eval().colour(layer(z)), z, atol=1e-4)
    True

    Args:
        dimension: d.
        momentum: the weight of one batch in the running moments (see `RunningMoments`).
        shrinkage: how far the correlation is shrunk towards the identity, in [0, 1]. Latents of
            low rank need some: without it, W grows along the missing directions and amplifies
            rounding errors there.
        eps: the share of the mean variance that is added to every variance, so that a dead latent
            unit gives 0 instead of 0 / 0.
    """

    decorrelation: Tensor

    def __init__(
        self, dimension: int, momentum: float = 0.01, shrinkage: float = 0.0, eps: float = 1e-5
    ) -> None:
        super().__init__(dimension, momentum, shrinkage)
        if eps <= 0:
            raise InputError(f"eps must be positive, got {eps}")
        self.eps = eps
        self.register_buffer("decorrelation", torch.eye(dimension))

    def forward(self, z: Tensor) -> Tensor:
        """Whiten a batch; in training mode also update the running moments and W."""
        self.check("latents", z)
        if not self.training:
            return ((z - self.running_mean) / self._running_scale()) @ self.decorrelation.mT
        mean, centred, covariance = batch_moments(z)
        scale = self._scale(centred.square().mean(0))
        with torch.no_grad():
            self.update(mean, covariance)
            self._decorrelate()
        return (centred / scale) @ self.decorrelation.mT

    @torch.no_grad()
    def fit(self, z: Tensor) -> None:
        """Replace the running moments and W by those of these latents."""
        super().fit(z)
        self.decorrelation = torch.eye(self.dimension).to(self.decorrelation)
        # Small eigenvalues of the correlation, at least its rounding error, double every step.
        for _ in range(50):
            self._decorrelate()

    def colour(self, u: Tensor) -> Tensor:
        """Undo whitening in evaluation mode exactly: `colour(whiten(z)) == z`."""
        self.check("white latents", u)
        standardised = solve(self.decorrelation, u.mT).mT
        return standardised * self._running_scale() + self.running_mean

    def _decorrelate(self) -> None:
        whitened = self.decorrelation @ self._correlation() @ self.decorrelation.mT
        # Newton-Schulz converges for eigenvalues in (0, 3); the row sum bounds the largest one.
        damping = whitened.abs().sum(-1).max().div(2).clamp_min(1)
        error = torch.eye(self.dimension, dtype=whitened.dtype, device=whitened.device) - whitened
        # Not in place: an earlier forward pass may still need the old matrix for its gradient.
        self.decorrelation = self.decorrelation + error @ self.decorrelation / (2 * damping)

    def _correlation(self) -> Tensor:
        scale = self._running_scale()
        correlation = self.running_covariance / (scale[:, None] * scale)
        # Rounding may leave a singular correlation with an eigenvalue below 0, on which
        # Newton-Schulz diverges: shrink by at least the rounding error.
        rounding = self.dimension * torch.finfo(correlation.dtype).eps
        correlation = (1 - max(self.shrinkage, rounding)) * correlation
        correlation.diagonal().fill_(1)
        return correlation

    def _running_scale(self) -> Tensor:
        return self._scale(self.running_covariance.diagonal())

    def _scale(self, variances: Tensor) -> Tensor:
        smallest = torch.finfo(variances.dtype).tiny  # where all units are dead
        return (variances + self.eps * variances.mean() + smallest).sqrt()
