"""An agent's own data: indexable samples, and their order in training."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from sheafed.agents.collation import Collate, collate_rows, split_targets
from sheafed.errors import DtypeError, ShapeError
from sheafed.seeds import permutation
from sheafed.tensor_tree import TensorTree, select_rows, tree_length, update_digest

INTEGERS = (
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
)


class Batch(NamedTuple):
    """Inputs `(n, ...)` and, unless unlabelled, targets `(n, ...)`.

    Inputs of several tensors are a mapping, tuple or list of them.
    """

    inputs: TensorTree
    targets: Tensor | None

    def first(self, count: int) -> "Batch":
        """Return its first samples, all if there are fewer."""
        if count >= tree_length(self.inputs):
            return self
        targets = None if self.targets is None else self.targets[:count]
        return Batch(select_rows(self.inputs, slice(count)), targets)


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
    >>> TensorSamples({"tokens": torch.zeros(3, 7), "mask": torch.ones(3, 7)}).batch(
    ...     torch.tensor([2])
    ... ).inputs["mask"]
    tensor([[1., 1., 1., 1., 1., 1., 1.]])
    """

    inputs: TensorTree
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        if self.targets is not None and len(self.targets) != len(self):
            raise ShapeError(
                f"every input needs one target, got {len(self)} inputs and "
                f"{len(self.targets)} targets"
            )

    def __len__(self) -> int:
        return tree_length(self.inputs)

    def batch(self, indices: Tensor) -> Batch:
        targets = None if self.targets is None else as_labels(select_rows(self.targets, indices))
        return Batch(select_rows(self.inputs, indices), targets)

    def digest(self) -> str:
        """Return a digest of all inputs and targets, by which they are recognised."""
        content = blake2b(digest_size=16)
        update_digest(content, {"inputs": self.inputs})
        if self.targets is not None:
            update_digest(content, {"targets": self.targets})
        return content.hexdigest()


@dataclass(frozen=True)
class ByteSamples(TensorSamples):
    """Images stored as uint8, a quarter of the memory, whose batches are float32 in [0, 1].

    >>> samples = ByteSamples(torch.full((2, 1, 4, 4), 255, dtype=torch.uint8))
    >>> samples.batch(torch.tensor([0])).inputs.max()
    tensor(1.)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.inputs.dtype if isinstance(self.inputs, Tensor) else type(self.inputs).__name__
        if kind != torch.uint8:
            raise DtypeError(f"inputs must be torch.uint8, got {kind}")

    def batch(self, indices: Tensor) -> Batch:
        inputs, targets = super().batch(indices)
        return Batch(inputs / 255, targets)


@dataclass(frozen=True)
class DatasetSamples:
    """The samples of anything with a length that gives rows by their index.

    A torch `Dataset`, a data set of Hugging Face or a list, whose rows are inputs, (input, target)
    pairs or mappings of columns.

    >>> rows = [{"input_ids": [7, 8], "label": 1}, {"input_ids": [9, 0], "label": 0}]
    >>> DatasetSamples(rows).batch(torch.tensor([1]))
    Batch(inputs={'input_ids': tensor([[9, 0]])}, targets=tensor([0]))

    Args:
        dataset: the rows.
        collate_fn: from a list of rows to a batch of them, e.g. to pad; by default rows are stacked
            as a DataLoader does, where a list of numbers is one tensor.
        target: the column of the targets, where a batch is a mapping; by default `labels` or
            `label`, if there is one.
        num_workers: processes that read rows ahead.
        batch_size: in training, unless the agent says otherwise.
    """

    dataset: Any
    collate_fn: Collate | None = None
    target: str | None = None
    num_workers: int = 0
    batch_size: int | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor) -> Batch:
        """Return the collated samples at `indices`."""
        read = getattr(
            self.dataset, "__getitems__", lambda chosen: [self.dataset[i] for i in chosen]
        )
        collate = collate_rows if self.collate_fn is None else self.collate_fn
        inputs, targets = split_targets(collate(read(indices.tolist())), self.target)
        return Batch(inputs, None if targets is None else as_labels(targets))


def as_labels(targets: Tensor) -> Tensor:
    """Return integers as int64, the type of labels in torch, and other targets as they are.

    >>> as_labels(torch.tensor([2, 0], dtype=torch.uint8))
    tensor([2, 0])
    """
    if not isinstance(targets, Tensor) or targets.dtype not in INTEGERS:
        return targets
    return targets.long()


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


class DataOrder:
    """Endless batches of indices; every pass over the data has its own permutation.

    Permutations are derived from the seed, so a state is just a position. A batch never spans two
    passes: the samples that do not fill a last batch are skipped in that pass.
    """

    def __init__(self, total: int, batch_size: int, seed: int, name: str) -> None:
        self._total = total
        self.batch_size = min(batch_size, total)
        self._purpose = (seed, name, "data")
        self.seek((0, 0))

    @property
    def position(self) -> tuple[int, int]:
        """The pass over the data, and the offset within it."""
        return self._pass, self._offset

    @property
    def passes(self) -> float:
        """Samples in all batches so far, as a multiple of the samples that there are.

        Those that did not fill a last batch do not count, so a pass may be less than one.
        """
        whole = self._total - self._total % self.batch_size
        return (self._pass * whole + self._offset) / self._total

    def seek(self, position: tuple[int, int]) -> None:
        self._pass, self._offset = position
        self._order = permutation(self._total, *self._purpose, self._pass)

    def next(self) -> Tensor:
        """Return the indices of the next batch."""
        if self._offset + self.batch_size > self._total:
            self.seek((self._pass + 1, 0))
        indices = self._order[self._offset : self._offset + self.batch_size]
        self._offset += self.batch_size
        return indices
