"""Encoders that others have made, as modules from an agent's inputs to latents `(n, d)`."""

from sheafed.models.adapters.huggingface import HuggingFaceEncoder, load_huggingface
from sheafed.models.adapters.images import AsImages
from sheafed.models.adapters.scikit import ScikitEncoder
from sheafed.models.adapters.timm_models import TimmEncoder, load_timm

__all__ = [
    "AsImages",
    "HuggingFaceEncoder",
    "ScikitEncoder",
    "TimmEncoder",
    "load_huggingface",
    "load_timm",
]
