"""From the rows of a data set to inputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from sheafed.errors import InputError, ShapeError
from sheafed.tensor_tree import TensorTree, map_tensors

Collate = Callable[[list[Any]], Any]
"""From a list of rows to a batch, as `torch.utils.data.DataLoader` takes it."""

TARGET_COLUMNS = ("labels", "label")
"""The columns that hold the targets unless another is named."""


def collate_rows(rows: Sequence[Any]) -> Any:
    """Stack rows as torch's `default_collate` does, but take a list of numbers for one tensor.

    >>> collate_rows([{"input_ids": [7, 8, 9], "label": 1}, {"input_ids": [4, 5, 6], "label": 0}])
    {'input_ids': tensor([[7, 8, 9],
            [4, 5, 6]]), 'label': tensor([1, 0])}
    """
    try:
        return default_collate([_lists_as_tensors(row) for row in rows])
    except (RuntimeError, TypeError) as problem:
        raise ShapeError(
            f"rows cannot be stacked to a batch: {problem}; give collate_fn, a function from a "
            "list of rows to a batch that pads them"
        ) from problem


def split_targets(collated: Any, target: str | None) -> tuple[TensorTree, Tensor | None]:
    """Divide a batch into inputs and targets.

    >>> split_targets({"input_ids": torch.ones(1, 2), "label": torch.tensor([0])}, target=None)
    ({'input_ids': tensor([[1., 1.]])}, tensor([0]))

    Args:
        collated: inputs, an (inputs, targets) pair, or a mapping of columns.
        target: the column of the targets; by default `labels` or `label`, if there is one.
    """
    if isinstance(collated, Mapping):
        return _split_columns(collated, target)
    if target is not None:
        raise InputError(
            f"target={target!r} names a column, but the rows have no columns: a batch is "
            f"{type(collated).__name__}; leave target out, or give rows that are mappings"
        )
    if isinstance(collated, Tensor):
        return collated, None
    if not isinstance(collated, tuple | list) or len(collated) not in (1, 2):
        found = type(collated).__name__
        raise InputError(
            "a Dataset must give inputs, (input, target) pairs or mappings of columns, got batches "
            f"of type {found}{f' of {len(collated)}' if isinstance(collated, tuple | list) else ''}"
            "; inputs of several tensors are a pair's first element: ((a, b), target)"
        )
    inputs = map_tensors(lambda tensor: tensor, collated[0])
    return inputs, collated[1] if len(collated) == 2 else None


def _split_columns(
    columns: Mapping[str, Any], target: str | None
) -> tuple[TensorTree, Tensor | None]:
    listed = list(columns)
    found = [name for name in TARGET_COLUMNS if name in columns] if target is None else [target]
    if len(found) > 1 or (target is not None and target not in columns):
        raise InputError(
            f"the targets are not in one known column: looked for {found}, the columns are "
            f"{listed}; name the column by target="
        )
    inputs = {name: part for name, part in columns.items() if name not in found}
    if not inputs:
        raise InputError(f"there are no inputs: the columns are {listed}")
    for name, part in inputs.items():
        try:
            map_tensors(lambda tensor: tensor, part)
        except InputError as problem:
            raise InputError(
                f"column {name!r} holds no tensors ({problem}); the columns are {listed}: remove "
                "those that the encoder does not take, or turn them into tensors in collate_fn"
            ) from problem
    return inputs, columns[found[0]] if found else None


def _lists_as_tensors(row: Any) -> Any:
    """Return a row in which every list of numbers is a tensor."""
    if isinstance(row, Mapping):
        return {name: _lists_as_tensors(part) for name, part in row.items()}
    if isinstance(row, tuple) and not hasattr(row, "_fields"):
        return tuple(_lists_as_tensors(part) for part in row)
    if isinstance(row, list):
        return torch.tensor(row) if _is_numeric(row) else [_lists_as_tensors(part) for part in row]
    return row


def _is_numeric(values: list[Any]) -> bool:
    return all(
        _is_numeric(value) if isinstance(value, list) else isinstance(value, int | float)
        for value in values
    )
