"""Image encoders by name."""

from collections.abc import Callable

from sheafed.errors import InputError
from sheafed.pretrained.images.catalog import image_encoder_info
from sheafed.pretrained.images.image_encoder import ImageEncoder
from sheafed.pretrained.images.trunk import load_trunk
from sheafed.pretrained.latents import logger
from sheafed.pretrained.sizes import RESOLUTION

FEWEST_PIXELS = 32  # the trunks halve five times


def load_image_encoder(
    name: str, resolution: int = RESOLUTION, *, log: Callable[[str], None] = logger.info
) -> ImageEncoder:
    """Return an image encoder by its name, fetching its files first if they are not in the cache.

    Args:
        name: as in `sheafed encoders list`.
        resolution: to which images are resized, in pixels. The encoders were trained with 224 to
            260; fewer cost less.
        log: told what is fetched.

    >>> encoder = load_image_encoder("mobilenet-v2")  # doctest: +SKIP
    >>> encoder.encode(torch.rand(2, 3, 32, 32)).shape  # doctest: +SKIP
    (2, 1280)
    """
    info = image_encoder_info(name)
    if resolution < FEWEST_PIXELS:
        raise InputError(f"resolution must be at least {FEWEST_PIXELS} pixels, got {resolution}")
    (content,) = info.contents(log).values()
    trunk = load_trunk(content, info.architecture)
    return ImageEncoder(name, info.dim, trunk, resolution, info.mean, info.std)
