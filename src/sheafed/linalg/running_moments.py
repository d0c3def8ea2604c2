"""Running mean and covariance of latents, the statistics of both whitening layers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_fraction, check_matrix


class RunningMoments(nn.Module):
    """The running mean `(d,)` and covariance `(d, d)` of the batches seen in training mode.

    Args:
        dimension: d.
        momentum: the weight of one batch, once 1 / momentum batches have been seen; before that
            the moments are plain averages.
        shrinkage: of the second moment before it is inverted, in [0, 1].
    """

    running_mean: Tensor
    running_covariance: Tensor
    batches: Tensor

    def __init__(self, dimension: int, momentum: float, shrinkage: float) -> None:
        super().__init__()
        if dimension < 1:
            raise InputError(f"dimension must be at least 1, got {dimension}")
        self.dimension = dimension
        self.momentum = check_fraction("momentum", momentum)
        self.shrinkage = check_fraction("shrinkage", shrinkage)
        self.register_buffer("running_mean", torch.zeros(dimension))
        self.register_buffer("running_covariance", torch.eye(dimension))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, mean: Tensor, covariance: Tensor) -> None:
        """Update the running moments by those of a batch."""
        self.batches += 1
        weight = max(self.momentum, 1.0 / int(self.batches))
        self.running_mean.lerp_(mean, weight)
        self.running_covariance.lerp_(covariance, weight)

    @torch.no_grad()
    def fit(self, z: Tensor) -> None:
        """Replace the running moments by those of these latents.

        A later batch has the weight `momentum`, as after many batches.
        """
        self.check("latents", z)
        mean, _, covariance = batch_moments(z)
        self.running_mean.copy_(mean)
        self.running_covariance.copy_(covariance)
        self.batches.fill_(math.ceil(1 / self.momentum) if self.momentum else len(z))

    def check(self, name: str, x: Tensor) -> None:
        """Raise unless `x` can be whitened or coloured by this layer."""
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
        return f"{self.dimension}, momentum={self.momentum}, shrinkage={self.shrinkage}"


def batch_moments(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean `(..., d)`, the centred batch `(..., n, d)` and its unbiased covariance.

    Differentiable.
    """
    count = z.shape[-2]
    if count < 2:
        raise EmptyInputError(
            f"training statistics need at least two rows, got {tuple(z.shape)}; "
            "call eval() to whiten single latents"
        )
    mean = z.mean(-2)
    centred = z - mean[..., None, :]
    return mean, centred, centred.mT @ centred / (count - 1)


@torch.no_grad()
def update_together(layers: Sequence[RunningMoments], mean: Tensor, covariance: Tensor) -> Tensor:
    """Do what `update` of each layer does; return the running covariances `(layers, d, d)`.

    Args:
        layers: of one dimension.
        mean: of their batches, `(layers, d)`.
        covariance: likewise, `(layers, d, d)`.
    """
    for layer in layers:
        layer.batches += 1
    weights = [max(layer.momentum, 1.0 / int(layer.batches)) for layer in layers]
    weight = torch.tensor(weights, dtype=torch.float64)
    means, covariances = (
        torch.stack([getattr(layer, name) for layer in layers]).lerp_(
            fresh, weight.to(fresh).view(-1, *[1] * (fresh.ndim - 1))
        )
        for name, fresh in (("running_mean", mean), ("running_covariance", covariance))
    )
    torch._foreach_copy_([layer.running_mean for layer in layers], means.unbind())
    torch._foreach_copy_([layer.running_covariance for layer in layers], covariances.unbind())
    return covariances
