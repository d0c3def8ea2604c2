r"""Whitening as a layer that is trained along (stochastic whitening batch normalisation).

$u = W D^{-1/2} (z - \mu)$. The standardisation ($\mu$ and the variances $D$) comes from the
batch and is differentiated, so no penalty gains by shrinking the latents. The decorrelating
matrix $W$ follows the running correlation $C$ outside autograd, by one Newton-Schulz step of
$W C W^\top \to I$ per batch. There is no learnable scale.
"""

import torch
from torch import Tensor, nn

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_fraction, check_matrix


class StochasticWhitening(nn.Module):
    """Whiten latents `(n, d)`: batch statistics in training, running ones in inference.

    Args:
        dimension: d.
        momentum: the weight of one batch in the running mean and covariance, once 1 / momentum
            batches have been seen; before that they are plain averages.
        shrinkage: how far the correlation is shrunk towards the identity, in [0, 1].
        eps: added to every variance, so that a dead latent unit gives 0 instead of 0 / 0.
    """

    running_mean: Tensor
    running_covariance: Tensor
    decorrelation: Tensor
    batches: Tensor

    def __init__(
        self, dimension: int, momentum: float = 0.01, shrinkage: float = 0.0, eps: float = 1e-5
    ) -> None:
        super().__init__()
        if dimension < 1:
            raise InputError(f"dimension must be at least 1, got {dimension}")
        if eps <= 0:
            raise InputError(f"eps must be positive, got {eps}")
        self.dimension = dimension
        self.momentum = check_fraction("momentum", momentum)
        self.shrinkage = check_fraction("shrinkage", shrinkage)
        self.eps = eps
        self.register_buffer("running_mean", torch.zeros(dimension))
        self.register_buffer("running_covariance", torch.eye(dimension))
        self.register_buffer("decorrelation", torch.eye(dimension))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, z: Tensor) -> Tensor:
        """Whiten a batch; in training mode also learn from it."""
        self._check("latents", z)
        if not self.training:
            return ((z - self.running_mean) / self._running_scale()) @ self.decorrelation.mT
        if len(z) < 2:
            raise EmptyInputError(
                f"training statistics need at least two rows, got {tuple(z.shape)}; "
                "call eval() to whiten single latents"
            )
        mean = z.mean(0)
        centred = z - mean
        scale = (centred.square().mean(0) + self.eps).sqrt()
        with torch.no_grad():
            self._learn(mean, centred.mT @ centred / (len(z) - 1))
        return (centred / scale) @ self.decorrelation.mT

    def colour(self, u: Tensor) -> Tensor:
        """Undo inference-mode whitening exactly: `colour(whiten(z)) == z`."""
        self._check("white latents", u)
        standardised: Tensor = torch.linalg.solve(self.decorrelation, u.mT).mT
        return standardised * self._running_scale() + self.running_mean

    def _learn(self, mean: Tensor, covariance: Tensor) -> None:
        self.batches += 1
        weight = max(self.momentum, 1.0 / int(self.batches))
        self.running_mean.lerp_(mean, weight)
        self.running_covariance.lerp_(covariance, weight)
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
        return (self.running_covariance.diagonal() + self.eps).sqrt()

    def _check(self, name: str, x: Tensor) -> None:
        check_matrix(name, x)
        if x.shape[1:] != (self.dimension,):
            raise ShapeError(
                f"this layer whitens latents of shape (n, {self.dimension}), got {name} of shape "
                f"{tuple(x.shape)}"
            )
        if x.dtype != self.running_mean.dtype:
            raise DtypeError(
                f"this layer computes in {self.running_mean.dtype}, got {name} of {x.dtype}; "
                "convert one of them"
            )

    def extra_repr(self) -> str:
        """Describe the layer when a model is printed."""
        return f"{self.dimension}, momentum={self.momentum}, shrinkage={self.shrinkage}"
