"""Inputs as models take them: a tensor, or tensors in mappings, tuples and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError

TensorTree = Any
"""A tensor, or a mapping, tuple or list of tensor trees."""

CHECKED_AT_ONCE = 4096
"""Rows that are searched for NaN at once."""


class Digest(Protocol):
    """What `hashlib` makes."""

    def update(self, data: memoryview | bytes, /) -> None: ...


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


def update_digest(digest: Digest, tree: TensorTree) -> None:
    """Add the names, in order, and the bytes of all tensors to a digest of `hashlib`."""
    for path, tensor in sorted(tensors(tree), key=lambda item: item[0]):
        digest.update(path.encode())  # empty if there is only one
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)


def tree_length(tree: TensorTree) -> int:
    """Return the number of rows, which all tensors must have.

    >>> tree_length({"tokens": torch.zeros(3, 2), "mask": torch.zeros(3)})
    3
    """
    lengths = {path: len(tensor) if tensor.ndim else 0 for path, tensor in tensors(tree)}
    if not lengths:
        raise EmptyInputError("the inputs hold no tensor; give at least one")
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{length} in inputs{path}" for path, length in lengths.items())
        raise ShapeError(f"all parts of the inputs need the same number of rows, got {found}")
    return next(iter(lengths.values()))


def select_rows(tree: TensorTree, indices: Tensor | slice) -> TensorTree:
    """Return some rows of every tensor.

    >>> select_rows({"a": torch.arange(3)}, torch.tensor([2, 0]))
    {'a': tensor([2, 0])}
    """
    if isinstance(indices, slice):
        return map_tensors(lambda tensor: tensor[indices], tree)
    return map_tensors(lambda tensor: tensor[indices.to(tensor.device)], tree)


def to_device(tree: TensorTree, device: torch.device) -> TensorTree:
    """Return the tree with every tensor on a device; those that are there are not copied."""
    return map_tensors(lambda tensor: tensor.to(device), tree)


def as_tensor_tree(given: Any) -> TensorTree:
    """Turn arrays into tensors: mappings and tuples hold several, anything else is one.

    >>> as_tensor_tree({"tokens": [[7, 8], [9, 0]], "pair": ([2, 1], [0.5, 1.0])})
    {'tokens': tensor([[7, 8],
            [9, 0]]), 'pair': (tensor([2, 1]), tensor([0.5000, 1.0000]))}
    """
    if isinstance(given, Tensor):
        return given
    if isinstance(given, Mapping):
        return {key: as_tensor_tree(part) for key, part in given.items()}
    if isinstance(given, tuple):
        parts = [as_tensor_tree(part) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    try:
        return to_tensor(given)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DtypeError(
            f"inputs must be numbers in arrays of one shape, got {type(given).__name__}: "
            f"{problem}; turn texts into token ids, and pad rows of different lengths"
        ) from problem


def to_tensor(given: Any) -> Tensor:
    """Return `torch.as_tensor` of anything, also of arrays that torch does not take as they are.

    >>> to_tensor(np.arange(3, dtype=">i8")[::-1])
    tensor([2, 1, 0])
    """
    if isinstance(given, np.ndarray):
        if not given.dtype.isnative:
            given = given.astype(given.dtype.newbyteorder("="))
        # A tensor over read-only memory, such as a mapped file, could write there.
        elif not given.flags.writeable or min(given.strides, default=0) < 0:
            given = given.copy()
    return torch.as_tensor(given)


def concatenate_rows(trees: Sequence[TensorTree]) -> TensorTree:
    """Return the rows of several trees of the same structure, one after the other.

    >>> concatenate_rows([{"a": torch.tensor([1])}, {"a": torch.tensor([2, 3])}])
    {'a': tensor([1, 2, 3])}
    """
    parts = zip(*([tensor for _, tensor in tensors(tree)] for tree in trees), strict=True)
    joined = (torch.cat(list(part)) for part in parts)
    return map_tensors(lambda _: next(joined), trees[0])


def same_tensors(one: TensorTree, other: TensorTree) -> bool:
    """Return whether two trees have equal tensors of the same types at the same paths.

    >>> same_tensors({"a": torch.ones(2)}, {"b": torch.ones(2)})
    False
    """
    mine, theirs = dict(tensors(one)), dict(tensors(other))
    return mine.keys() == theirs.keys() and all(
        tensor is theirs[path]
        or (tensor.dtype == theirs[path].dtype and torch.equal(tensor, theirs[path]))
        for path, tensor in mine.items()
    )


def count_non_finite(tree: TensorTree) -> tuple[int, int]:
    """Return how many values of a tree are not finite, and how many it has.

    >>> count_non_finite({"x": torch.tensor([1.0, float("nan")]), "tokens": torch.tensor([3])})
    (1, 3)
    """
    listed = [tensor for _, tensor in tensors(tree)]
    bad = sum(int((~torch.isfinite(tensor)).sum()) for tensor in listed)
    return bad, sum(tensor.numel() for tensor in listed)


def first_non_finite(tree: TensorTree) -> int | None:
    """Return the first row of a tree that holds NaN or infinity, if one does.

    >>> first_non_finite({"x": torch.tensor([1.0, float("nan")]), "tokens": torch.tensor([3, 4])})
    1
    """
    rows = [_first_non_finite(tensor) for _, tensor in tensors(tree)]
    return min((row for row in rows if row is not None), default=None)


def _first_non_finite(tensor: Tensor) -> int | None:
    if not tensor.is_floating_point():
        return None
    for start in range(0, len(tensor), CHECKED_AT_ONCE):  # all at once would take memory
        good = torch.isfinite(tensor[start : start + CHECKED_AT_ONCE])
        if not bool(good.all()):
            return start + int((~good).nonzero()[0, 0])  # row by row, so the first one's
    return None


def structure(tree: TensorTree) -> str:
    """Return the parts of a tree in words, without their types and sizes.

    >>> structure(torch.zeros(2, 3)), structure({"tokens": torch.zeros(2), "mask": torch.zeros(2)})
    ('one tensor', "a mapping of 'mask', 'tokens'")
    """
    if isinstance(tree, Mapping):
        return f"a mapping of {', '.join(sorted(map(repr, tree)))}"
    return f"{len(tree)} tensors" if isinstance(tree, tuple | list) else "one tensor"


def describe(tree: TensorTree, rows: int | None = None) -> str:
    """Return the types and shapes of a tree's tensors in words.

    >>> describe(torch.zeros(2, 3))
    'torch.float32 of shape (2, 3)'
    >>> describe({"tokens": torch.zeros(2, 7, dtype=torch.int64), "x": torch.zeros(2)}, rows=9)
    "['tokens'] torch.int64 of shape (9, 7), ['x'] torch.float32 of shape (9,)"

    Args:
        tree: the tensors.
        rows: how many they have, if the tree holds a few of them only.
    """
    return ", ".join(
        f"{path} {tensor.dtype} of shape {_shape(tensor, rows)}".strip()
        for path, tensor in tensors(tree)
    )


def _shape(tensor: Tensor, rows: int | None) -> tuple[int, ...]:
    shape = tuple(tensor.shape)
    return shape if rows is None or not shape else (rows, *shape[1:])
