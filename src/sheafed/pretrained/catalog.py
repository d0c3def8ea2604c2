"""All encoders that can be loaded by name."""

from collections.abc import Mapping

from sheafed.errors import InputError
from sheafed.pretrained.encoder_info import EncoderInfo
from sheafed.pretrained.images.catalog import IMAGE_ENCODERS
from sheafed.pretrained.texts.catalog import TEXT_ENCODERS


def encoders() -> Mapping[str, EncoderInfo]:
    return {**TEXT_ENCODERS, **IMAGE_ENCODERS}


def encoder_info(name: str) -> EncoderInfo:
    if name not in encoders():
        raise InputError(f"unknown encoder {name!r}; choose one of {', '.join(encoders())}")
    return encoders()[name]
