r"""ZCA whitening as a layer, with running statistics of latents that are being trained.

$u = Q D^{-1/2} Q^\top (z - \mu)$. The principal directions $Q$ are those of the running covariance,
outside autograd; along them the batch is centred and standardised by its own variances, which is
differentiated. So no single batch determines the directions, and yet white latents do not follow
the scale of the latents. Without shrinkage their mean square is 1, whatever the latents are; with
shrinkage it is less where few directions hold the variance, so that a penalty has to be relative
to it (see `gluing_penalty`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sheafed.devices import double
from sheafed.errors import SingularCovarianceError
from sheafed.linalg.checks import check_matrix
from sheafed.linalg.decompositions import eigh
from sheafed.linalg.running_moments import RunningMoments, batch_moments, update_together
from sheafed.linalg.whitening import inverse_sqrt_and_sqrt, shrink


class RunningZCA(RunningMoments):
    r"""Whiten latents `(n, d)`: batch variances in training mode, else $\Sigma^{-1/2}$.

    It commutes with rotations of the latent space, unlike `StochasticWhitening`, which
    standardises every coordinate separately.

    >>> layer = RunningZCA(3)
    >>> z = torch.randn(50, 3)
    >>> layer.fit(z)
    >>> torch.allclose(layer.eval().colour(layer(z)), z, atol=1e-4)
    True

    Args:
        dimension: d.
        momentum: the weight of one batch in the running moments (see `RunningMoments`).
        shrinkage: of all variances towards their mean. It must be above 0 where batches have
            fewer rows than dimensions. A larger one amplifies small variances less.
    """

    def __init__(self, dimension: int, momentum: float = 0.05, shrinkage: float = 0.1) -> None:
        super().__init__(dimension, momentum, shrinkage)
        self._roots: tuple[tuple[int, int], Tensor, Tensor] | None = None

    def forward(self, z: Tensor) -> Tensor:
        """Whiten a batch; in training mode also update the running moments."""
        self.check("latents", z)
        if not self.training:
            whitener, _ = self._running_roots()
            return (z - self.running_mean) @ whitener
        mean, centred, covariance = batch_moments(z)
        self.update(mean, covariance)
        with torch.no_grad():
            directions = eigh(double(self.running_covariance))[1].to(z)
        along = centred @ directions
        variances = along.square().mean(0)
        shrunk = (1 - self.shrinkage) * variances + self.shrinkage * variances.mean()
        self.check_varies(float(shrunk.detach().min()), len(z))
        return (along / shrunk.sqrt()) @ directions.mT

    def check_varies(self, smallest: float, count: int) -> None:
        """Raise if the smallest variance of a batch is 0."""
        if smallest <= 0:
            raise SingularCovarianceError(
                f"a batch of {count} latents has no variance along some of its {self.dimension} "
                "directions; give a shrinkage above 0"
            )

    def colour(self, u: Tensor) -> Tensor:
        """Undo whitening in evaluation mode: `colour(whiten(z)) == z`."""
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


def whiten_together(layers: Sequence[RunningZCA], z: Tensor) -> Tensor:
    """Return what each layer, in training mode, makes of its latents; its moments are updated.

    Args:
        layers: of one dimension.
        z: their latents, `(layers, n, d)`.
    """
    check_matrix("latents", z)
    mean, centred, covariance = batch_moments(z)
    with torch.no_grad():
        running = update_together(layers, mean, covariance)
        directions = eigh(double(running))[1].to(z)
    along = centred @ directions
    variances = along.square().mean(-2)
    amount = torch.tensor([[layer.shrinkage] for layer in layers], dtype=z.dtype, device=z.device)
    shrunk = (1 - amount) * variances + amount * variances.mean(-1, keepdim=True)
    for layer, smallest in zip(layers, shrunk.detach().amin(-1).tolist(), strict=True):
        layer.check_varies(smallest, z.shape[-2])
    return (along / shrunk.sqrt()[:, None]) @ directions.mT
