"""Existing models as encoders: modules from an agent's inputs to latents `(n, d)`."""

from sheafed.models.adapters.huggingface import HuggingFaceEncoder, load_huggingface
from sheafed.models.adapters.images import ImageInputs
from sheafed.models.adapters.scikit import ScikitEncoder
from sheafed.models.adapters.timm_models import TimmEncoder, load_timm

__all__ = [
    "HuggingFaceEncoder",
    "ImageInputs",
    "ScikitEncoder",
    "TimmEncoder",
    "load_huggingface",
    "load_timm",
]
