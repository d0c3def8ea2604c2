"""A frozen image encoder: resizing, normalisation and a trunk."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sheafed.errors import ShapeError

BATCH = 32


@dataclass(frozen=True)
class ImageEncoder:
    """A pretrained encoder of images, which is not trained further.

    Args:
        name: as in `sheafed encoders list`.
        dim: the size d of a latent.
        trunk: from normalised images `(b, 3, r, r)` to latents `(b, d)`.
        resolution: r, to which images are resized, by cubic interpolation.
        mean: that is subtracted, per channel, from values in [0, 1].
        std: by which they are then divided.
    """

    name: str
    dim: int
    trunk: nn.Module
    resolution: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def encode(self, images: Tensor, batch_size: int = BATCH) -> NDArray[np.float32]:
        """Return the latents `(n, d)` of images `(n, c, h, w)`, uint8 or floating-point in [0, 1].

        Grey images (c = 1) are repeated for three channels.
        """
        check_images(images)
        latents = [np.empty((0, self.dim), dtype=np.float32)]
        with torch.inference_mode():
            for batch in torch.split(images, batch_size):
                latents.append(self.trunk(self.prepare(batch)).numpy())
        return np.concatenate(latents)

    def prepare(self, images: Tensor) -> Tensor:
        """Return images as the trunk takes them, `(n, 3, r, r)`."""
        x = images / 255 if images.dtype == torch.uint8 else images.float()
        size = (self.resolution, self.resolution)
        x = interpolate(x, size, mode="bicubic", antialias=True).clamp(0, 1)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (x.expand(-1, 3, -1, -1) - mean) / std


def check_images(images: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ShapeError(
            f"images must have the shape (n, 1, h, w) or (n, 3, h, w), got {tuple(images.shape)}"
        )
