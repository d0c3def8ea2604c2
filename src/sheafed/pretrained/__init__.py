"""Pretrained encoders of texts and images by name, frozen, and the cache of their latents."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.pretrained.images.image_encoder import ImageEncoder
    from sheafed.pretrained.images.latents import encode_images
    from sheafed.pretrained.images.loading import load_image_encoder
    from sheafed.pretrained.texts.latents import encode_texts
    from sheafed.pretrained.texts.loading import load_text_encoder
    from sheafed.pretrained.texts.text_encoder import TextEncoder
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "ImageEncoder",
    "TextEncoder",
    "encode_images",
    "encode_texts",
    "load_image_encoder",
    "load_text_encoder",
]
