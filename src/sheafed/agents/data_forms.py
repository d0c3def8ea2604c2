"""Data in the forms in which people have them, as samples."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from sheafed.agents.collation import Collate, collate_rows, split_targets
from sheafed.agents.samples import DatasetSamples, LocalData, Samples, TensorSamples
from sheafed.errors import DtypeError, EmptyInputError, InputError
from sheafed.tensor_tree import TensorTree, as_tensor_tree, to_tensor


def as_local_data(
    given: Any,
    collate_fn: Collate | None = None,
    target: str | None = None,
    num_workers: int | None = None,
) -> LocalData:
    """Turn a mapping with `train`, `validation` and `test`, or training data, into `LocalData`.

    The options are those of `as_samples`.

    >>> data = as_local_data({"train": torch.zeros(8, 2), "test": torch.zeros(3, 2)})
    >>> len(data.train), data.validation, len(data.test)
    (8, None, 3)
    """
    if isinstance(given, LocalData):
        if collate_fn is not None or target is not None or num_workers is not None:
            raise InputError(
                "LocalData holds samples that were made before; give collate_fn, target and "
                "num_workers to its DatasetSamples"
            )
        return given
    if not isinstance(given, Mapping):
        return LocalData(as_samples(given, collate_fn, target, num_workers))
    unknown = set(given) - {"train", "validation", "test"}
    if unknown or "train" not in given:
        raise InputError(
            "data must have 'train' and may have 'validation' and 'test', got "
            f"{sorted(given)}; a mapping of columns is given as {{'train': columns}}"
        )
    splits = {}
    for split, samples in given.items():
        try:
            splits[split] = as_samples(samples, collate_fn, target, num_workers)
        except InputError as problem:
            raise type(problem)(f"its {split} data: {problem}") from problem
    return LocalData(splits["train"], splits.get("validation"), splits.get("test"))


def as_samples(
    given: Any,
    collate_fn: Collate | None = None,
    target: str | None = None,
    num_workers: int | None = None,
) -> Samples:
    """Turn data in any form into `Samples`.

    Args:
        given: arrays, an (inputs, targets) pair, a mapping of columns, a torch `Dataset` or another
            sequence of rows, a `DataLoader`, or `Samples`.
        collate_fn: see `DatasetSamples`; data in memory are taken for rows if there is one.
        target: see `DatasetSamples`.
        num_workers: see `DatasetSamples`; data in memory have no use for any.
    """
    samples = _as_samples(given, collate_fn, target, num_workers)
    if len(samples) == 0:
        raise EmptyInputError("the data has no samples; give at least one")
    return samples


def as_samples_like(own: Samples, given: Any, target: str | None) -> Samples:
    """Turn other data into samples as an agent's own were: by their `collate_fn` and `target`.

    Given `Samples` are whole batches already, and a `DataLoader` may have a `collate_fn` of its
    own. Data without the column `target` are unlabelled, or have the targets in another form.

    >>> own, rows = as_samples([{"x": 1, "kind": 0}], target="kind"), [{"x": 3, "kind": 1}]
    >>> as_samples_like(own, rows, "kind").batch(torch.arange(1))
    Batch(inputs={'x': tensor([3])}, targets=tensor([1]))
    >>> as_samples_like(own, [{"x": 3}], "kind").batch(torch.arange(1))
    Batch(inputs={'x': tensor([3])}, targets=None)
    """
    collate_fn = own.collate_fn if isinstance(own, DatasetSamples) else None
    if isinstance(given, DataLoader) and given.collate_fn is not default_collate:
        collate_fn = given.collate_fn
    if _gives_batches(given):
        return as_samples(given)
    if collate_fn is None and _is_in_memory(given):
        named = isinstance(given, Mapping) and target in given
        return as_samples(given, target=target if named else None)
    collate = collate_fn
    if target is not None:
        collate = partial(_split_where_named, collate_fn or collate_rows, target)
    samples = as_samples(given, collate)
    return samples if collate_fn is None else _tried(samples)


def _split_where_named(collate: Collate, target: str, rows: list[Any]) -> Any:
    collated = collate(rows)
    named = isinstance(collated, Mapping) and target in collated
    return split_targets(collated, target) if named else collated


def _tried(samples: Samples) -> Samples:
    """Return samples whose first row could be read."""
    try:
        samples.batch(torch.arange(1))
    except InputError:
        raise
    except Exception as problem:  # a collate_fn may be of the user's own
        raise InputError(
            f"the first row cannot be read ({type(problem).__name__}: {problem}); rows are read by "
            "the agent's collate_fn: give them as in its training data, or whole batches as "
            "sheafed.agents.TensorSamples(inputs, labels)"
        ) from problem
    return samples


def _as_samples(
    given: Any, collate_fn: Collate | None, target: str | None, num_workers: int | None
) -> Samples:
    if isinstance(given, DataLoader):
        # Its order is not taken over: that of an agent follows from the seed, so it can be resumed.
        own = None if given.collate_fn is default_collate else given.collate_fn
        workers = given.num_workers if num_workers is None else num_workers
        return DatasetSamples(
            _map_style(given.dataset), collate_fn or own, target, workers, given.batch_size
        )
    if _gives_batches(given):
        if collate_fn is not None or target is not None:
            raise InputError(
                f"{type(given).__name__} gives whole batches; leave collate_fn and target out"
            )
        return given
    in_memory = _is_in_memory(given)
    if in_memory and collate_fn is None:
        return TensorSamples(*_in_memory(given, target))
    rows = _rows(given) if in_memory else given
    if not _has_rows(rows, collate_fn):
        raise InputError(
            "data must be an array, an (inputs, targets) pair, a mapping of columns, a torch "
            "Dataset or a list of rows (pairs or mappings), a DataLoader or Samples, got "
            f"{type(given).__name__}{_pair_hint(given)}"
        )
    return DatasetSamples(_map_style(rows), collate_fn, target, num_workers or 0)


def _gives_batches(given: Any) -> TypeGuard[Samples]:
    # Data sets of Hugging Face have a method `batch` too, of another meaning.
    return not hasattr(given, "column_names") and isinstance(given, Samples)


def _is_in_memory(given: Any) -> bool:
    pair = isinstance(given, tuple) and len(given) == 2
    return pair or isinstance(given, Tensor | np.ndarray | Mapping)


def _in_memory(given: Any, target: str | None) -> tuple[TensorTree, Tensor | None]:
    if isinstance(given, tuple):
        return as_tensor_tree(given[0]), _as_targets(given[1])
    return split_targets(as_tensor_tree(given), target)


def _as_targets(given: Any) -> Tensor:
    try:
        return to_tensor(given)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DtypeError(
            f"labels must be whole numbers from 0 on, got {type(given).__name__}: {problem}; "
            "number them, as `classes, labels = numpy.unique(names, return_inverse=True)` does, "
            "and give the names as classes=list(classes)"
        ) from problem


def _has_rows(given: Any, collate_fn: Collate | None) -> bool:
    """Return whether data give rows by index; a list of arrays may be meant as a pair."""
    if isinstance(given, list) and given and collate_fn is None:
        return isinstance(given[0], tuple | Mapping)
    return hasattr(given, "__getitem__") and not isinstance(given, str | bytes | tuple)


def _pair_hint(given: Any) -> str:
    """Return what to do about a list of inputs and targets; empty for anything else."""
    arrays = isinstance(given, list) and all(isinstance(x, Tensor | np.ndarray) for x in given)
    pair = arrays and len(given) == 2
    return " of two arrays; write a tuple (inputs, targets), not [inputs, targets]" if pair else ""


def _rows(given: Any) -> list[Any]:
    """Return data in memory as a list of rows, whose lengths may differ."""
    if isinstance(given, Mapping):
        columns = [_rows(column) for column in given.values()]
        return [dict(zip(given, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(given, tuple):
        return list(zip(*map(_rows, given), strict=True))
    return list(given)


def _map_style(dataset: Any) -> Any:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InputError(
            f"{type(dataset).__name__} has no length, and agents choose samples by their index; "
            "give a data set with __len__ and __getitem__"
        )
    return dataset
