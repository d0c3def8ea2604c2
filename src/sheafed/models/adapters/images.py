"""From an agent's images to the images that a pretrained model expects."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sheafed.errors import ShapeError


class ImageInputs(nn.Module):
    """Resize images `(n, c, h, w)` with values in [0, 1], repeat grey channels, and standardise.

    >>> prepare = ImageInputs((3, 32, 32), mean=(0.5,), std=(0.5,))
    >>> prepare(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 3, 32, 32])

    Args:
        size: (channels, height, width) that the model expects.
        mean: of each channel; 0 by default.
        std: of each channel; 1 by default.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        size: tuple[int, int, int],
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.size = size
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, size[0]):
                raise ShapeError(f"{name} must have 1 or {size[0]} values, got {list(values)}")
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        channels, *sides = self.size
        if images.ndim != 4 or images.shape[1] not in (1, channels):
            raise ShapeError(
                f"expected images (n, c, h, w) of 1 or {channels} channels, got "
                f"{tuple(images.shape)}"
            )
        if list(images.shape[2:]) != sides:
            images = nn.functional.interpolate(
                images, sides, mode="bilinear", antialias=True, align_corners=False
            )
        return (images.expand(-1, channels, -1, -1) - self.mean) / self.std
