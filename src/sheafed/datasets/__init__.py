"""Data sets, their division among agents (`partitions`), and other modalities (`modalities`)."""

from sheafed.datasets import modalities, partitions
from sheafed.datasets.cache import data_directory
from sheafed.datasets.catalog import load
from sheafed.datasets.custom import from_arrays, from_dataset, from_folder
from sheafed.datasets.label_distribution import label_counts, plot_label_distribution
from sheafed.datasets.labelled_dataset import LabelledDataset

__all__ = [
    "LabelledDataset",
    "data_directory",
    "from_arrays",
    "from_dataset",
    "from_folder",
    "label_counts",
    "load",
    "modalities",
    "partitions",
    "plot_label_distribution",
]
