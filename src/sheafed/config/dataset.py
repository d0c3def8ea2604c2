"""The data set of an experiment, which every agent sees in a form of its own.

A form is a modality of images, or a frozen pretrained encoder whose latents the agent gets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from sheafed.config.experiment import Data, Model
from sheafed.datasets import LabelledDataset, from_folder, load, load_texts, subset
from sheafed.datasets.cache import missing_files
from sheafed.datasets.catalog import DATASETS
from sheafed.datasets.modalities import MODALITIES
from sheafed.datasets.texts import TEXTS
from sheafed.errors import ConfigError
from sheafed.pretrained import encode_images, encode_texts
from sheafed.pretrained.images.catalog import image_encoder_info
from sheafed.pretrained.images.latents import images_are_encoded
from sheafed.pretrained.texts.catalog import text_encoder_info
from sheafed.pretrained.texts.latents import texts_are_encoded


class ViewedDataset(Protocol):
    """Labelled samples of one kind, in any of their forms."""

    kind: ClassVar[Literal["images", "texts"]]

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

    def is_encoded(self, form: str) -> bool:
        """Whether samples can be viewed in this form without encoding any of them first."""

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

    kind: ClassVar[Literal["images", "texts"]] = "texts"

    @cached_property
    def _latents(self) -> dict[str, Tensor]:
        return {}

    def take(self, indices: Tensor) -> EncodedTexts:
        texts = tuple(self.texts[index] for index in indices.tolist())
        return replace(self, texts=texts, labels=self.labels[indices])

    def view(self, form: str, indices: Tensor) -> Tensor:
        if form not in self._latents:  # all at once, as the cache on disk keeps them
            self._latents[form] = encode_texts(form, self.texts)
        return self._latents[form][indices]

    def is_encoded(self, form: str) -> bool:
        return texts_are_encoded(form, self.texts)

    def shape_of(self, form: str) -> tuple[int, ...]:
        return (text_encoder_info(form).dim,)

    def shows_images(self, form: str) -> bool:
        return False


class ViewedImages(LabelledDataset):
    """Images that an agent sees in a modality, or as the latents of a frozen pretrained encoder."""

    kind: ClassVar[Literal["images", "texts"]] = "images"

    @cached_property
    def _latents(self) -> dict[str, Tensor]:
        return {}

    def view(self, form: str, indices: Tensor) -> Tensor:
        if form in MODALITIES:
            return super().view(form, indices)
        if form not in self._latents:
            self._latents[form] = encode_images(form, self.inputs)
        return self._latents[form][indices]

    def is_encoded(self, form: str) -> bool:
        return form in MODALITIES or images_are_encoded(form, self.inputs)

    def shape_of(self, form: str) -> tuple[int, ...]:
        return super().shape_of(form) if form in MODALITIES else (image_encoder_info(form).dim,)

    def shows_images(self, form: str) -> bool:
        return form in MODALITIES and super().shows_images(form)


def viewed_images(images: LabelledDataset) -> ViewedImages:
    return ViewedImages(images.name, images.inputs, images.labels, images.classes)


def load_dataset(table: Data) -> ViewedDataset:
    """Return a data set by name, or a folder of images; as many samples as the table asks for."""
    samples: ViewedDataset
    if Path(table.name).is_dir():
        samples = viewed_images(from_folder(Path(table.name)))
    elif table.name in TEXTS:
        found = load_texts(table.name)
        samples = EncodedTexts(found.name, found.texts, found.labels, found.classes)
    elif table.name in DATASETS:
        samples = viewed_images(load(table.name))
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


def missing_latents(data: Data, model: Model) -> list[str]:
    """Return the pretrained encoders of a config's agents that a run would have to wait for.

    Those of whose latents of the data set the cache lacks some; all if it lacks the data set.
    """
    encoders = list(dict.fromkeys(a.pretrained for a in model.agents if a.pretrained))
    info = DATASETS.get(data.name) or TEXTS.get(data.name)
    if not encoders or (info is not None and info.remote and missing_files(info.remote)):
        return encoders
    samples = load_dataset(data)
    return [encoder for encoder in encoders if not samples.is_encoded(encoder)]
