"""Inputs as models take them: a tensor, or tensors in mappings, tuples and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sheafed.errors import InputError, ShapeError

TensorTree = Any
"""A tensor, or a mapping, tuple or list of tensor trees."""


def map_tensors(function: Callable[[Tensor], Tensor], tree: TensorTree) -> TensorTree:
    """Apply a function to every tensor; mappings become dicts, tuples and lists keep their type.

    >>> map_tensors(len, {"tokens": torch.zeros(3, 2), "pair": (torch.zeros(3), torch.ones(3))})
    {'tokens': 3, 'pair': (3, 3)}
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # a named tuple
        return type(tree)(*(map_tensors(function, part) for part in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map_tensors(function, part) for part in tree)
    raise InputError(
        "inputs must be a tensor, or mappings, tuples and lists of tensors, got "
        f"{type(tree).__name__}"
    )


def tensors(tree: TensorTree) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its path, e.g. `"['tokens']"`; that of a lone tensor is empty.

    >>> [path for path, _ in tensors({"tokens": torch.zeros(1), "pair": (torch.zeros(1),)})]
    ["['tokens']", "['pair'][0]"]
    """
    if isinstance(tree, Mapping):
        parts: Any = tree.items()
    elif isinstance(tree, tuple | list):
        parts = enumerate(tree)
    else:
        yield "", tree
        return
    for key, part in parts:
        for path, tensor in tensors(part):
            yield f"[{key!r}]{path}", tensor


def tree_length(tree: TensorTree) -> int:
    """Return the number of rows, which all tensors must have.

    >>> tree_length({"tokens": torch.zeros(3, 2), "mask": torch.zeros(3)})
    3
    """
    lengths = {path: len(tensor) for path, tensor in tensors(tree)}
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{length} in inputs{path}" for path, length in lengths.items())
        raise ShapeError(f"all parts of the inputs need the same number of rows, got {found}")
    return next(iter(lengths.values()))


def select_rows(tree: TensorTree, indices: Tensor | slice) -> TensorTree:
    """Return some rows of every tensor.

    >>> select_rows({"a": torch.arange(3)}, torch.tensor([2, 0]))
    {'a': tensor([2, 0])}
    """
    return map_tensors(lambda tensor: tensor[indices], tree)


def to_device(tree: TensorTree, device: torch.device) -> TensorTree:
    """Return the tree with every tensor on a device; those that are there are not copied."""
    return map_tensors(lambda tensor: tensor.to(device), tree)
