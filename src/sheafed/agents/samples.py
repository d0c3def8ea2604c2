"""An agent's own data: indexable samples, and the order in which training meets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.seeds import permutation


class Batch(NamedTuple):
    """Inputs `(n, ...)` and, if there are any, targets `(n, ...)`."""

    inputs: Tensor
    targets: Tensor | None


@runtime_checkable
class Samples(Protocol):
    """Anything with a length that gives the batch of some indices."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Batch:
        """Return the samples at `indices` `(n,)`."""
        ...


@dataclass(frozen=True)
class TensorSamples:
    """Samples that lie in memory as tensors."""

    inputs: Tensor
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        if self.targets is not None and len(self.targets) != len(self.inputs):
            raise ShapeError(
                f"every input needs one target, got {len(self.inputs)} inputs and "
                f"{len(self.targets)} targets"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor) -> Batch:
        """Return the samples at `indices`."""
        targets = None if self.targets is None else self.targets[indices]
        return Batch(self.inputs[indices], targets)


@dataclass(frozen=True)
class ByteSamples(TensorSamples):
    """Images that are kept as bytes, a quarter of the memory, and seen as fractions of 255."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs.dtype != torch.uint8:
            raise DtypeError(f"these inputs must be bytes, torch.uint8, got {self.inputs.dtype}")

    def batch(self, indices: Tensor) -> Batch:
        """Return the samples at `indices`, as float32."""
        inputs, targets = super().batch(indices)
        return Batch(inputs / 255, targets)


@dataclass(frozen=True)
class DatasetSamples:
    """The samples of a map-style torch `Dataset`, of inputs or of (input, target) pairs."""

    dataset: Dataset[Any]

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batch(self, indices: Tensor) -> Batch:
        """Return the samples at `indices`, collated as a DataLoader would."""
        collated = default_collate([self.dataset[i] for i in indices.tolist()])
        if isinstance(collated, Tensor):
            return Batch(collated, None)
        if not isinstance(collated, list) or len(collated) not in (1, 2):
            raise InputError(
                "a Dataset must give inputs or (input, target) pairs, got samples of type "
                f"{type(self.dataset[0]).__name__}; wrap it in one that does"
            )
        return Batch(collated[0], collated[1] if len(collated) == 2 else None)


def as_samples(given: Any) -> Samples:
    """Turn arrays, tensors, an (inputs, targets) pair or a torch `Dataset` into `Samples`."""
    samples: Samples
    if isinstance(given, Samples):
        samples = given
    elif isinstance(given, Tensor | np.ndarray):
        samples = TensorSamples(torch.as_tensor(given))
    elif isinstance(given, tuple) and len(given) == 2:
        samples = TensorSamples(*map(torch.as_tensor, given))
    elif isinstance(given, Dataset):
        samples = DatasetSamples(given)
    else:
        raise InputError(
            "data must be an array, an (inputs, targets) pair, a torch Dataset or Samples, got "
            f"{type(given).__name__}"
        )
    if len(samples) == 0:
        raise EmptyInputError("there are no samples in the data; give at least one")
    return samples


@dataclass(frozen=True)
class LocalData:
    """What one agent holds: data to train on and, if it has them, to choose by and to test on."""

    train: Samples
    validation: Samples | None = None
    test: Samples | None = None


def as_local_data(given: Any) -> LocalData:
    """Turn a mapping with `train`, `validation` and `test`, or training data alone, into one."""
    if isinstance(given, LocalData):
        return given
    if not isinstance(given, Mapping):
        return LocalData(as_samples(given))
    unknown = set(given) - {"train", "validation", "test"}
    if unknown or "train" not in given:
        raise InputError(
            f"data must have 'train' and may have 'validation' and 'test', got {sorted(given)}"
        )
    return LocalData(**{split: as_samples(samples) for split, samples in given.items()})


class DataOrder:
    """Endless batches of indices: each pass is a new permutation, derived and not stored.

    A batch never spans two passes: what does not fill one is left for another permutation.
    """

    def __init__(self, total: int, batch_size: int, seed: int, name: str) -> None:
        self._total = total
        self._batch_size = min(batch_size, total)
        self._purpose = (seed, name, "data")
        self.seek((0, 0))

    @property
    def position(self) -> tuple[int, int]:
        """The pass and the offset within it."""
        return self._pass, self._offset

    def seek(self, position: tuple[int, int]) -> None:
        """Go on from a position."""
        self._pass, self._offset = position
        self._order = permutation(self._total, *self._purpose, self._pass)

    def next(self) -> Tensor:
        """Return the indices of the next batch."""
        if self._offset + self._batch_size > self._total:
            self.seek((self._pass + 1, 0))
        indices = self._order[self._offset : self._offset + self._batch_size]
        self._offset += self._batch_size
        return indices
