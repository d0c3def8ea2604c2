"""Data sets and the ways to divide them among agents."""

from sheafed.datasets.cache import data_directory
from sheafed.datasets.catalog import LabelledDataset, load
from sheafed.datasets.custom import from_arrays, from_dataset, from_folder

__all__ = [
    "LabelledDataset",
    "data_directory",
    "from_arrays",
    "from_dataset",
    "from_folder",
    "load",
]
