"""Latents of images, from the cache if they are there."""

import json
from collections.abc import Callable
from hashlib import sha256

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError
from sheafed.pretrained import latents
from sheafed.pretrained.images.catalog import image_encoder_info
from sheafed.pretrained.images.image_encoder import check_images
from sheafed.pretrained.images.loading import load_image_encoder
from sheafed.pretrained.sizes import RESOLUTION


def encode_images(
    encoder: str,
    images: Tensor,
    resolution: int = RESOLUTION,
    *,
    log: Callable[[str], None] = latents.logger.info,
) -> Tensor:
    """Return the latents `(n, d)` of images, float32, encoding only what is not in the cache.

    Args:
        encoder: its name, as in `sheafed encoders list`.
        images: `(n, c, h, w)` of one or three channels, uint8 or floating-point in [0, 1].
        resolution: to which they are resized, in pixels.
        log: told what is fetched and encoded; a terminal shows a progress bar besides.
    """
    info = image_encoder_info(encoder)
    check_images(images)
    if not len(images):
        raise EmptyInputError("no images to encode; give at least one")
    chunks = torch.split(images, latents.CHUNK)
    keys = [chunk_key(encoder, chunk, resolution) for chunk in chunks]
    return latents.cached_latents(
        info, chunks, keys, lambda: load_image_encoder(encoder, resolution, log=log).encode, log
    )


def images_are_encoded(encoder: str, images: Tensor, resolution: int = RESOLUTION) -> bool:
    """Whether the cache has the latents of these images, so that nothing need be encoded."""
    keys = [chunk_key(encoder, chunk, resolution) for chunk in torch.split(images, latents.CHUNK)]
    return latents.are_cached(image_encoder_info(encoder), keys)


def chunk_key(encoder: str, images: Tensor, resolution: int) -> str:
    """Return the digest of all that the latents of a chunk depend on."""
    pixels = images.contiguous().numpy()
    identity = image_encoder_info(encoder).identity()
    content = [*identity, resolution, pixels.dtype.str, pixels.shape]
    digest = sha256(json.dumps(content, separators=(",", ":")).encode("ascii"))
    digest.update(pixels.data)
    return digest.hexdigest()
