"""Your own data as a `LabelledDataset`: arrays, a folder of images, or a torch `Dataset`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.datasets.labels import as_numbers
from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError

MODES = {1: "L", 3: "RGB"}
DEEP_MODES = ("I", "F")  # more than 8 bits: converting them to 8 would clip


def from_arrays(
    x: Any, y: Any, *, name: str = "arrays", classes: Sequence[str] | None = None
) -> LabelledDataset:
    """Return arrays or tensors as a data set.

    >>> dataset = from_arrays(np.zeros((3, 8, 8), dtype=np.uint8), [0, 2, 1])
    >>> dataset.shape, dataset.classes
    ((1, 8, 8), ('0', '1', '2'))

    Args:
        x: images `(n, c, h, w)` or `(n, h, w)`, or vectors `(n, p)`; uint8 or floating-point.
        y: whole numbers `(n,)` from 0 on.
        name: of the data set, in messages.
        classes: names of the classes; by default the numbers from 0 to the largest label.
    """
    inputs, labels = as_numbers(f"{name}: x", x), as_numbers(f"{name}: y", y)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise DtypeError(f"{name}: y must be whole numbers from 0 on, got {labels.dtype}; convert")
    if not len(labels):
        raise EmptyInputError(f"{name}: no samples; give at least one")
    inputs = inputs[:, None] if inputs.ndim == 3 else inputs
    numbered = [str(k) for k in range(int(labels.max()) + 1)]
    return LabelledDataset(
        name, inputs, labels.long(), tuple(numbered if classes is None else classes)
    )


def from_dataset(
    dataset: Dataset[Any], *, name: str | None = None, classes: Sequence[str] | None = None
) -> LabelledDataset:
    """Read all (input, label) pairs of a torch `Dataset` into memory.

    Inputs are tensors, arrays or Pillow images, all of one shape; an array or tensor `(h, w)` is
    an image of one channel. Labels are whole numbers from 0 on. Classes are named by
    `dataset.classes` unless names are given.

    >>> from torch.utils.data import TensorDataset
    >>> from_dataset(TensorDataset(torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 1]))).labels
    tensor([0, 1, 0, 1, 1])
    """
    name = name or type(dataset).__name__
    inputs, labels = [], []
    for k, pair in enumerate(_samples(dataset)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(
                f"{name}: sample {k} must be an (input, label) pair, got {type(pair).__name__}; "
                "wrap the dataset in one that gives pairs"
            )
        inputs.append(_pixels(pair[0]) if isinstance(pair[0], Image.Image) else pair[0])
        labels.append(_label(name, k, pair[1]))
    if not inputs:
        raise EmptyInputError(f"{name}: no samples; give at least one")
    tensors = [as_numbers(f"{name}: input {k}", given) for k, given in enumerate(inputs)]
    _check_alike(name, [(f"input {k}", tuple(t.shape)) for k, t in enumerate(tensors)])
    classes = getattr(dataset, "classes", None) if classes is None else classes
    return from_arrays(torch.stack(tensors), labels, name=name, classes=classes)


def from_folder(
    path: Path | str,
    *,
    name: str | None = None,
    size: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
) -> LabelledDataset:
    """Read a folder with one subfolder of images per class, in the order of their names.

    Names that begin with a dot are left out; anything else that is not an image is an error.

    Args:
        path: the folder.
        name: of the data set; by default that of the folder.
        size: (height, width) to resize to; by default all images must have one size.
        channels: 1 to convert to grey, 3 to convert to RGB; by default all images must be
            8-bit grey or all must be RGB.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     for name in ("cat", "dog"):
    ...         (Path(root) / name).mkdir()
    ...         Image.new("L", (8, 8)).save(Path(root) / name / "0.png")
    ...     dataset = from_folder(root)
    >>> dataset.shape, dataset.classes
    ((1, 8, 8), ('cat', 'dog'))
    """
    root = Path(path)
    name = name or root.resolve().name
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; give one with a subfolder of images per class")
    folders = _listed(root)
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder; every entry of {root} must be the folder of a class"
            )
    files = [(file, label) for label, folder in enumerate(folders) for file in _images(folder)]
    if not files:
        raise EmptyInputError(f"{root} has no subfolders; make one per class, with its images")
    images = [_read(file, size, channels) for file, _ in files]
    _check_alike(name, [(str(f), tuple(i.shape)) for (f, _), i in zip(files, images, strict=True)])
    labels = torch.tensor([label for _, label in files])
    return LabelledDataset(
        name, torch.stack(images), labels, tuple(folder.name for folder in folders)
    )


def _label(name: str, k: int, given: Any) -> int:
    label = as_numbers(f"{name}: label {k}", given)
    if label.is_floating_point() or label.dtype == torch.bool or label.numel() != 1:
        raise DtypeError(
            f"{name}: label {k} must be a whole number from 0 on, got {label.dtype} of shape "
            f"{tuple(label.shape)}; convert"
        )
    return int(label)


def _samples(dataset: Dataset[Any]) -> Iterator[Any]:
    """Iterate by index where there is one: not every map-style dataset ends by IndexError."""
    if isinstance(dataset, IterableDataset):
        return iter(dataset)
    return (dataset[k] for k in range(len(dataset)))  # type: ignore[arg-type]


def _check_alike(name: str, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    (first, expected), *rest = shapes
    for what, shape in rest:
        if shape != expected:
            raise ShapeError(
                f"{name}: all inputs must have one shape, but {first} has {expected} and {what} "
                f"{shape}; resize them (from_folder takes size= and channels=)"
            )


def _listed(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    files = _listed(folder)
    if not files:
        raise EmptyInputError(f"{folder} has no images; add some or remove the folder")
    return files


def _read(path: Path, size: tuple[int, int] | None, channels: int | None) -> Tensor:
    try:
        with Image.open(path) as opened:
            image = opened.copy()
    except OSError as error:  # Pillow's errors are OSErrors
        raise InputError(f"{path} cannot be read as an image ({error}); move it away") from error
    if image.mode.startswith(DEEP_MODES):
        raise InputError(f"{path} has more than 8 bits per value ({image.mode}); convert it first")
    if channels is not None:
        if channels not in MODES:
            raise InputError(f"channels must be 1 or 3, got {channels}")
        image = image.convert(MODES[channels])
    if image.mode not in MODES.values():
        raise InputError(
            f"{path} has the colour mode {image.mode}, expected 8-bit grey (L) or RGB; give "
            "channels=1 or channels=3 to convert"
        )
    if size is not None:
        height, width = size
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(_pixels(image))


def _pixels(image: Image.Image) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an image as `(c, h, w)`."""
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy()
