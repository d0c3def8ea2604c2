"""The data set of an experiment, which every agent sees in a form of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

from torch import Tensor

from sheafed.config.experiment import Data
from sheafed.datasets import from_folder, load, load_texts, subset
from sheafed.datasets.catalog import DATASETS
from sheafed.datasets.texts import TEXTS
from sheafed.errors import ConfigError
from sheafed.text_encoders import encode_cached
from sheafed.text_encoders.catalog import text_encoder_info


class ViewedDataset(Protocol):
    """Labelled samples: images by modality, or texts by the pretrained encoder that encodes them.

    `form_key` is the key of an agent in a config that chooses its form.
    """

    form_key: ClassVar[str]

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Tensor: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    def take(self, indices: Tensor) -> ViewedDataset:
        """Return some of the samples, in this order."""

    def view(self, form: str, indices: Tensor) -> Tensor:
        """Return samples as an agent with this form stores them; uint8 stands for [0, 1]."""

    def shape_of(self, form: str) -> tuple[int, ...]:
        """Return the shape of one sample in this form."""

    def shows_images(self, form: str) -> bool:
        """Whether samples in this form can be shifted, rotated and erased in part."""


@dataclass(frozen=True)
class EncodedTexts:
    """Texts that an agent sees as the latents of a frozen pretrained encoder."""

    name: str
    texts: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]

    form_key: ClassVar[str] = "pretrained"

    @cached_property
    def _latents(self) -> dict[str, Tensor]:
        return {}

    def take(self, indices: Tensor) -> EncodedTexts:
        texts = tuple(self.texts[index] for index in indices.tolist())
        return replace(self, texts=texts, labels=self.labels[indices])

    def view(self, form: str, indices: Tensor) -> Tensor:
        if form not in self._latents:  # all at once, as the cache on disk keeps them
            self._latents[form] = encode_cached(form, self.texts)
        return self._latents[form][indices]

    def shape_of(self, form: str) -> tuple[int, ...]:
        return (text_encoder_info(form).dim,)

    def shows_images(self, form: str) -> bool:
        return False


def load_dataset(table: Data) -> ViewedDataset:
    """Return a data set by name, or a folder of images; as many samples as the table asks for."""
    samples: ViewedDataset
    if Path(table.name).is_dir():
        samples = from_folder(Path(table.name))
    elif table.name in TEXTS:
        found = load_texts(table.name)
        samples = EncodedTexts(found.name, found.texts, found.labels, found.classes)
    elif table.name in DATASETS:
        samples = load(table.name)
    else:
        raise ConfigError(
            f"unknown data set {table.name!r} in data.name; choose one of "
            f"{', '.join((*DATASETS, *TEXTS))}, or a folder of images with one subfolder per class"
        )
    if table.samples is None:
        return samples
    if table.samples > len(samples.labels):
        raise ConfigError(
            f"data.samples must be at most {len(samples.labels)}, the number of samples of "
            f"{samples.name}, got {table.samples}"
        )
    return samples.take(subset(samples.labels, table.samples))
