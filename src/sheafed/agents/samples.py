"""An agent's own data: indexable samples, and their order in training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.seeds import permutation

INTEGERS = (
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
)


class Batch(NamedTuple):
    """Inputs `(n, ...)` and, unless unlabelled, targets `(n, ...)`."""

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
    """Samples in memory.

    >>> samples = TensorSamples(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
    >>> samples.batch(torch.tensor([2]))
    Batch(inputs=tensor([[4., 5.]]), targets=tensor([0]))
    """

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
        targets = None if self.targets is None else as_labels(self.targets[indices])
        return Batch(self.inputs[indices], targets)


@dataclass(frozen=True)
class ByteSamples(TensorSamples):
    """Images stored as uint8, a quarter of the memory, whose batches are float32 in [0, 1].

    >>> samples = ByteSamples(torch.full((2, 1, 4, 4), 255, dtype=torch.uint8))
    >>> samples.batch(torch.tensor([0])).inputs.max()
    tensor(1.)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs.dtype != torch.uint8:
            raise DtypeError(f"inputs must be torch.uint8, got {self.inputs.dtype}")

    def batch(self, indices: Tensor) -> Batch:
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
        return Batch(collated[0], as_labels(collated[1]) if len(collated) == 2 else None)


def as_labels(targets: Tensor) -> Tensor:
    """Return integers as int64, the type of labels in torch, and other targets as they are.

    >>> as_labels(torch.tensor([2, 0], dtype=torch.uint8))
    tensor([2, 0])
    """
    if not isinstance(targets, Tensor) or targets.dtype not in INTEGERS:
        return targets
    return targets.long()


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
        raise EmptyInputError("the data has no samples; give at least one")
    return samples


@dataclass(frozen=True)
class LocalData:
    """The data of one agent: for training and, optionally, for validation and testing.

    Where agents see one event in forms of their own, `seen_by(split, name)` gives a split's samples
    in the form of another agent. Only the oracle encoder is measured with it.
    """

    train: Samples
    validation: Samples | None = None
    test: Samples | None = None
    seen_by: Callable[[str, str], Samples] | None = None


def as_local_data(given: Any) -> LocalData:
    """Turn a mapping with `train`, `validation` and `test`, or training data, into `LocalData`.

    >>> data = as_local_data({"train": torch.zeros(8, 2), "test": torch.zeros(3, 2)})
    >>> len(data.train), data.validation, len(data.test)
    (8, None, 3)
    """
    if isinstance(given, LocalData):
        return given
    if not isinstance(given, Mapping):
        return LocalData(as_samples(given))
    unknown = set(given) - {"train", "validation", "test"}
    if unknown or "train" not in given:
        raise InputError(
            f"data must have 'train' and may have 'validation' and 'test', got {sorted(given)}"
        )
    splits = {split: as_samples(samples) for split, samples in given.items()}
    return LocalData(splits["train"], splits.get("validation"), splits.get("test"))


class DataOrder:
    """Endless batches of indices; every pass over the data has its own permutation.

    Permutations are derived from the seed, so a state is just a position. A batch never spans two
    passes: the samples that do not fill a last batch are skipped in that pass.
    """

    def __init__(self, total: int, batch_size: int, seed: int, name: str) -> None:
        self._total = total
        self._batch_size = min(batch_size, total)
        self._purpose = (seed, name, "data")
        self.seek((0, 0))

    @property
    def position(self) -> tuple[int, int]:
        """The pass over the data, and the offset within it."""
        return self._pass, self._offset

    def seek(self, position: tuple[int, int]) -> None:
        self._pass, self._offset = position
        self._order = permutation(self._total, *self._purpose, self._pass)

    def next(self) -> Tensor:
        """Return the indices of the next batch."""
        if self._offset + self._batch_size > self._total:
            self.seek((self._pass + 1, 0))
        indices = self._order[self._offset : self._offset + self._batch_size]
        self._offset += self._batch_size
        return indices
