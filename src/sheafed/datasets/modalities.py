"""Modalities made from images, for agents with different sensors of the same event.

Each is a pure function of images `(n, c, h, w)`, row by row, so pilots stay paired across
modalities.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, one_hot

from sheafed.errors import DtypeError, InputError, ShapeError


def pixels(images: Tensor) -> Tensor:
    """Return the images unchanged.

    >>> pixels(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 1, 8, 8])
    """
    return images


def fourier(images: Tensor) -> Tensor:
    r"""Return the magnitudes of the orthonormal 2-D Fourier transform, `(n, c, h, w // 2 + 1)`.

    The other half follows by symmetry. They show which patterns there are, not where.

    >>> fourier(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 1, 8, 5])
    """
    _check(images)
    magnitudes: Tensor = torch.fft.rfft2(images, norm="ortho").abs()
    return magnitudes


def profiles(images: Tensor) -> Tensor:
    """Return the mean of every row, then of every column, `(n, c, h + w)`.

    >>> profiles(torch.tensor([[[[1.0, 3.0], [5.0, 7.0]]]]))
    tensor([[[2., 6., 3., 5.]]])
    """
    _check(images)
    return torch.cat([images.mean(-1), images.mean(-2)], -1)


def gradients(images: Tensor, bins: int = 8, cells: int = 2) -> Tensor:
    r"""Return histograms of oriented gradients, `(n, c, bins, cells, cells)`.

    Each pixel votes for one direction with the length of its gradient; a cell averages its pixels.

    >>> gradients(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 1, 8, 2, 2])

    Args:
        images: with at least two pixels either way.
        bins: number of directions, centred on the multiples of $2 \pi$ / bins, so that straight and
            diagonal edges do not lie on a border.
        cells: number of cells along each side of the image.
    """
    _check(images)
    if bins < 1 or cells < 1:
        raise InputError(f"bins and cells must be at least 1, got {bins} and {cells}")
    if min(images.shape[-2:]) < 2:
        raise ShapeError(f"a gradient needs two pixels either way, got {tuple(images.shape)}")
    down, right = torch.gradient(images, dim=(-2, -1))
    direction = (torch.atan2(down, right) * (bins / (2 * math.pi))).round().long() % bins
    votes = one_hot(direction, bins) * torch.hypot(down, right)[..., None]
    pooled: Tensor = adaptive_avg_pool2d(votes.movedim(-1, 2).flatten(1, 2), cells)
    return pooled.reshape(*images.shape[:2], bins, cells, cells)


MODALITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "pixels": pixels,
    "fourier": fourier,
    "profiles": profiles,
    "gradients": gradients,
}
"""The modalities by their names in configs."""


def _check(images: Tensor) -> None:
    if images.ndim != 4:
        raise ShapeError(
            f"a modality is made of images (n, c, h, w), got shape {tuple(images.shape)}"
        )
    if not images.is_floating_point():
        raise DtypeError(
            f"a modality is made of floating-point images, got {images.dtype}; convert them"
        )
