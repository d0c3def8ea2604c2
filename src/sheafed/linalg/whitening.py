r"""Closed-form whitening, and the colouring that undoes it.

ZCA: $u = \Sigma^{-1/2}(z - \mu)$ and $z = \Sigma^{1/2} u + \mu$, with the covariance shrunk
towards a multiple of the identity,
$\Sigma = (1-s)\hat\Sigma + s\,\frac{\mathrm{tr}\hat\Sigma}{d} I$. The target is rotation
invariant, so whitening commutes with rotations of the latent space: rotated latents give white
latents rotated by the same matrix, and Procrustes absorbs it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sheafed.devices import double
from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    InputError,
    ShapeError,
    SingularCovarianceError,
)
from sheafed.linalg.checks import check_fraction, check_matrix
from sheafed.linalg.decompositions import eigh
from sheafed.linalg.scaling import power_of_two, scaled

Shrinkage = float | Literal["auto"]

# Latents that differ from their mean by fewer units of rounding, root mean square, are constant.
ROUNDINGS = 8


@dataclass(frozen=True)
class Whitening:
    """An affine map to white coordinates and its inverse, made by `zca`.

    >>> z = torch.randn(20, 3)
    >>> whitening = zca(z)
    >>> torch.allclose(whitening.colour(whitening.whiten(z)), z, atol=1e-4)
    True
    """

    mean: Tensor
    """`(..., d)`"""
    whitener: Tensor
    r"""`(..., d, d)`, symmetric: $\Sigma^{-1/2}$."""
    colourer: Tensor
    r"""`(..., d, d)`, symmetric: $\Sigma^{1/2}$."""

    def whiten(self, z: Tensor) -> Tensor:
        """Map latents `(..., n, d)` to white coordinates."""
        self._check("latents", z)
        return (z - self.mean[..., None, :]) @ self.whitener

    def colour(self, u: Tensor) -> Tensor:
        """Map white coordinates `(..., n, d)` back: the inverse of `whiten`."""
        self._check("white latents", u)
        return u @ self.colourer + self.mean[..., None, :]

    def _check(self, name: str, x: Tensor) -> None:
        check_matrix(name, x)
        if x.shape[-1] != self.mean.shape[-1]:
            raise ShapeError(
                f"this whitening is for latents of size {self.mean.shape[-1]}, got {name} of "
                f"shape {tuple(x.shape)}"
            )
        if x.dtype != self.mean.dtype:
            raise DtypeError(
                f"this whitening computes in {self.mean.dtype}, got {name} of {x.dtype}; "
                "convert one of them"
            )


def zca(x: Tensor, shrinkage: Shrinkage = 0.0) -> Whitening:
    """Fit ZCA whitening to the rows of `x` `(..., n, d)`; differentiable in `x`, once.

    >>> x = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> white = zca(x).whiten(x)
    >>> torch.allclose(white.mT @ white / 4, torch.eye(2), atol=1e-6)
    True

    Args:
        x: latents.
        shrinkage: from 0 (none) to 1 (only the overall scale is whitened), or `"auto"` for the
            Ledoit-Wolf optimum. Without any, a singular covariance is an error.
    """
    scale = power_of_two(check_matrix("x", x))
    mean, covariance = shrunk_covariance(x / scale, shrinkage)
    _check_varies(covariance)
    whitener, colourer = inverse_sqrt_and_sqrt(covariance)
    return Whitening(mean * scale[..., 0], whitener / scale, colourer * scale)


def _check_varies(covariance: Tensor) -> None:
    """Raise if a covariance of numbers up to 2 is that of a constant, whose mean was rounded."""
    variance = covariance.detach().diagonal(dim1=-2, dim2=-1).mean(-1)  # shrinkage keeps it
    if bool((variance <= (ROUNDINGS * torch.finfo(covariance.dtype).eps) ** 2).any()):
        check_variance(covariance.shape[-1], covariance.shape[-1])


def check_variance(flat: int, d: int) -> None:
    """Raise if some of d directions have no variance."""
    if flat == d:
        raise SingularCovarianceError(
            f"the covariance is singular: none of its {d} directions has variance, since all "
            "latents are alike, which shrinkage cannot change; check the encoder and its inputs"
        )
    if flat:
        raise SingularCovarianceError(
            f"the covariance is singular: {flat} of its {d} directions have no variance (too few "
            "samples, or dead latent units); give shrinkage='auto' or, if that is given, a number "
            "like 0.1"
        )


def shrunk_covariance(x: Tensor, shrinkage: Shrinkage = 0.0) -> tuple[Tensor, Tensor]:
    """Return the mean `(..., d)` and the shrunk covariance `(..., d, d)` (divisor n)."""
    check_matrix("x", x)
    n = x.shape[-2]
    if n < 2:
        raise EmptyInputError(f"a covariance needs at least two rows, got x of {tuple(x.shape)}")
    mean = x.mean(-2)
    centred = x - mean[..., None, :]
    covariance = centred.mT @ centred / n
    if shrinkage == "auto":
        amount = ledoit_wolf(x)[..., None, None]
    elif isinstance(shrinkage, str):
        raise InputError(f"shrinkage must be 'auto' or a number in [0, 1], got {shrinkage!r}")
    else:
        amount = torch.as_tensor(
            check_fraction("shrinkage", shrinkage), dtype=x.dtype, device=x.device
        )
    return mean, shrink(covariance, amount)


def shrink(covariance: Tensor, amount: Tensor | float) -> Tensor:
    r"""Return $(1-s)\Sigma + s\,\frac{\mathrm{tr}\Sigma}{d} I$ of `(..., d, d)`."""
    scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return (1 - amount) * covariance + amount * scale * identity


def ledoit_wolf(x: Tensor) -> Tensor:
    """Return the shrinkage `(...)` that minimises the expected error of the covariance.

    >>> bool(0 < ledoit_wolf(torch.randn(20, 5)) <= 1)
    True
    """
    x = scaled(check_matrix("x", x))
    n, d = x.shape[-2:]
    with torch.no_grad():
        centred = double(x - x.mean(-2, keepdim=True))
        covariance = centred.mT @ centred / n
        scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
        squares = centred.square()
        energy = covariance.square().sum((-2, -1))
        noise = (squares.sum(-1).square().sum(-1) / n - energy) / n
        distance = energy - d * scale.square()
        amount = torch.where(distance > 0, noise.clamp_min(0) / distance.clamp_min(1e-300), 1.0)
        return amount.clamp_max(1.0).to(x)


def inverse_sqrt_and_sqrt(covariance: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return $\Sigma^{-1/2}$ and $\Sigma^{1/2}$ of symmetric positive definite matrices."""
    check_matrix("covariance", covariance)
    if covariance.shape[-2] != covariance.shape[-1]:
        raise ShapeError(f"a covariance must be square, got {tuple(covariance.shape)}")
    roots: tuple[Tensor, Tensor] = _Roots.apply(covariance)  # type: ignore[no-untyped-call]
    return roots


class _Roots(torch.autograd.Function):
    r"""$\Sigma^{-1/2}$ and $\Sigma^{1/2}$ with the Daleckii-Krein derivative.

    Differentiating through `eigh` divides by differences of eigenvalues and breaks on repeated
    ones. The derivative of a matrix function needs only the divided differences
    $(f(\lambda_i) - f(\lambda_j)) / (\lambda_i - \lambda_j)$, which for roots have a form
    without cancellation.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = eigh(double(covariance))
        d = covariance.shape[-1]
        floor = values[..., -1:] * d * torch.finfo(covariance.dtype).eps
        check_variance(int((values <= floor).sum(-1).max()), d)
        ctx.save_for_backward(values, vectors)
        inverse_root = (vectors * values.rsqrt()[..., None, :]) @ vectors.mT
        root = (vectors * values.sqrt()[..., None, :]) @ vectors.mT
        return inverse_root.to(covariance), root.to(covariance)

    @staticmethod
    @once_differentiable  # the saved eigenvectors are constants to autograd
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        of_inverse_root, of_root = gradients
        values: Tensor
        vectors: Tensor
        values, vectors = ctx.saved_tensors
        rows, columns = values.sqrt()[..., :, None], values.sqrt()[..., None, :]
        inner = (vectors.mT @ double(of_root) @ vectors) / (rows + columns)
        inner -= (vectors.mT @ double(of_inverse_root) @ vectors) / (
            rows * columns * (rows + columns)
        )
        return (vectors @ inner @ vectors.mT).to(of_root)
