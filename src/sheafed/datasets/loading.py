"""Loading data sets by name."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from sheafed.datasets import cache
from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.catalog import dataset_info
from sheafed.datasets.cifar import read_cifar
from sheafed.datasets.idx import parse_idx
from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.errors import DataUnavailableError


def load(name: str) -> LabelledDataset:
    """Return a data set by its name, fetching it first if it is not in the cache.

    `mnist`, `fashion-mnist` and `cifar10` are their training and test sets, in this order, as one.

    >>> digits = load("digits")
    >>> len(digits), digits.shape
    (1797, (1, 8, 8))
    """
    info = dataset_info(name)
    if info.remote is None:
        return _read_digits(name, info.classes)
    if cache.missing_files(info.remote):  # a complete cache may be read-only
        cache.fetch(info.remote)
    return FORMATS[info.format](info.remote, info.classes)


def read_idx_dataset(dataset: RemoteFiles, classes: tuple[str, ...]) -> LabelledDataset:
    """Read cached files of images, labels, images, labels, ... and join the parts."""
    parts = [parse_idx(cache.read(dataset, file), file.name) for file in dataset.files]
    images, labels = torch.cat(parts[0::2]), torch.cat(parts[1::2])
    return LabelledDataset(dataset.name, images[:, None], labels.long(), classes)


FORMATS = {"idx": read_idx_dataset, "cifar": read_cifar}


def _read_digits(name: str, classes: tuple[str, ...]) -> LabelledDataset:
    """Read scikit-learn's file of digits, without scikit-learn, which takes a second to import."""
    package = find_spec("sklearn")
    directory = Path(((package and package.submodule_search_locations) or [""])[0])
    path = directory / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise DataUnavailableError(
            f"scikit-learn has no file {path}; install a version that sheafed requires"
        )
    with gzip.open(path) as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=","))
    images = table[:, :-1].reshape(-1, 1, 8, 8).float() / 16
    return LabelledDataset(name, images, table[:, -1].long(), classes)
