"""Images and texts, their division among agents (`partitions`), and `modalities` of images."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.datasets import modalities, partitions
    from sheafed.datasets.cache import data_directory
    from sheafed.datasets.custom import from_arrays, from_dataset, from_folder
    from sheafed.datasets.label_distribution import label_counts, plot_label_distribution
    from sheafed.datasets.labelled_dataset import LabelledDataset
    from sheafed.datasets.loading import load
    from sheafed.datasets.stratified_subset import subset
    from sheafed.datasets.texts import TextDataset, load_texts
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "LabelledDataset",
    "TextDataset",
    "data_directory",
    "from_arrays",
    "from_dataset",
    "from_folder",
    "label_counts",
    "load",
    "load_texts",
    "modalities",
    "partitions",
    "plot_label_distribution",
    "subset",
]
