"""Pretrained text encoders by name, frozen, and the cache of their latents."""

from sheafed.text_encoders.latents import encode_cached
from sheafed.text_encoders.loading import load_text_encoder
from sheafed.text_encoders.text_encoder import TextEncoder

__all__ = ["TextEncoder", "encode_cached", "load_text_encoder"]
