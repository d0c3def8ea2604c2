"""Random augmentations of small images that keep their class.

They draw from torch's global stream, which is the agent's own while its objective runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from sheafed.errors import InputError, ShapeError
from sheafed.options import Fraction, NotNegative, OneOf, options
from sheafed.tensor_tree import TensorTree, concatenate_rows, structure

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

Augment = Callable[[Any], Any]
"""From inputs `(n, ...)`, of one or several tensors, to augmented inputs of the same shape."""


@options
class Augmentation:
    """Rotate, shift, erase a part of and add noise to every image of `(n, c, h, w)` independently.

    >>> augment = Augmentation(rotation=20, noise=0)
    >>> augment(torch.zeros(4, 1, 8, 8)).shape
    torch.Size([4, 1, 8, 8])

    Args:
        shift: the largest, in both directions, as a fraction of the image; in whole pixels.
        rotation: the largest angle, to both sides, in degrees.
        erasing: the sides of the rectangle that is set to 0, as a fraction of the image.
        noise: the standard deviation of Gaussian noise; with the others 0, inputs may have any
            shape.
    """

    shift: Fraction = 0.125
    rotation: Annotated[float, Field(ge=0, le=180, strict=True)] = 10.0
    erasing: Fraction = 0.25
    noise: NotNegative = 0.05

    @property
    def needs_images(self) -> bool:
        """Noise alone suits inputs of any shape."""
        return bool(self.shift or self.rotation or self.erasing)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        if self.needs_images and images.ndim != 4:
            raise ShapeError(
                "only images (n, c, h, w) can be shifted, rotated or erased in part, got inputs of "
                f"shape {tuple(images.shape)}; keep the images' shape and flatten them in the "
                "encoder, or give Augmentation(shift=0, rotation=0, erasing=0), or your own"
            )
        n, size = len(images), torch.tensor(images.shape[2:])
        if n == 0:  # grid_sample refuses an empty batch
            return images
        if self.shift or self.rotation:
            angles = math.radians(self.rotation) * (2 * torch.rand(n) - 1)
            most = (self.shift * size).round()
            offsets = (torch.rand(n, 2) * (2 * most + 1)).floor() - most
            images = warp(images, angles, offsets)
        if self.erasing:
            sides = (self.erasing * size).round().long()
            corners = (torch.rand(n, 2) * (size - sides + 1)).long()
            images = erase(images, corners, sides)
        if self.noise:
            images = images + self.noise * torch.randn_like(images)
        return images


AnyAugmentation = Annotated[Augment, OneOf(Augmentation, Callable)]
"""The type of options: `Augmentation` or a function of one's own."""


def warp(images: Tensor, angles: Tensor, offsets: Tensor) -> Tensor:
    """Rotate images `(n, c, h, w)` about their centre, then shift them; padded with 0.

    Args:
        images: interpolated linearly.
        angles: `(n,)` in radians, clockwise.
        offsets: `(n, 2)` in pixels, downwards and to the right.
    """
    h, w = images.shape[2:]
    cos, sin, (down, right) = angles.cos(), angles.sin(), offsets.unbind(1)
    # Where each pixel comes from, in the units of grid_sample: an image reaches from -1 to 1.
    theta = torch.stack(
        [
            torch.stack([cos, sin * h / w, -2 * (cos * right + sin * down) / w], dim=1),
            torch.stack([-sin * w / h, cos, -2 * (cos * down - sin * right) / h], dim=1),
        ],
        dim=1,
    ).to(images)
    grid = torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)


def erase(images: Tensor, corners: Tensor, sides: Tensor) -> Tensor:
    """Return the images `(n, c, h, w)` with a rectangle of each set to 0.

    Args:
        images: not changed in place.
        corners: `(n, 2)`, the uppermost row and the leftmost column of each rectangle.
        sides: `(2,)`, the height and width of all rectangles.
    """
    within = []
    for axis in (0, 1):
        places = torch.arange(images.shape[2 + axis])
        first = corners[:, axis, None]
        within.append((places >= first) & (places < first + sides[axis]))
    inside = within[0][:, None, :, None] & within[1][:, None, None, :]
    return images.masked_fill(inside.to(images.device), 0)


def augmented(agent: Agent, augment: Augment, inputs: TensorTree) -> TensorTree:
    """Return augmented inputs, or raise if they are not of the one tensor that images are."""
    if isinstance(augment, Augmentation) and not isinstance(inputs, Tensor):
        raise InputError(
            f"agent {agent.name!r}: Augmentation is for inputs of one tensor, got "
            f"{structure(inputs)}; give augmentation=, a function of your own from such inputs to "
            "augmented ones"
        )
    return augment(inputs)


def encode_two_views(agent: Agent, augment: Augment, inputs: TensorTree) -> tuple[Tensor, Tensor]:
    """Return the latents `(n, d)` of two augmentations of the inputs, encoded in one batch."""
    views = [augmented(agent, augment, inputs) for _ in range(2)]
    first, second = agent.encode(concatenate_rows(views)).chunk(2)
    return first, second
