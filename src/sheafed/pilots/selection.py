"""The pilots of one round: which shared samples are encoded, and how they are pooled."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_matrix


@dataclass(frozen=True, eq=False)
class Selection:
    """The samples that an agent encodes in a round, and how they are pooled into K pilots.

    >>> original = Selection(torch.tensor([1, 4, 5]))
    >>> original.count
    3
    >>> centroids = Selection(torch.tensor([0, 2, 3]), groups=torch.tensor([0, 1, 1]))
    >>> centroids.pool(torch.tensor([[1.0, 1.0], [0.0, 2.0], [2.0, 4.0]]))
    tensor([[1., 1.],
            [1., 3.]])

    Args:
        indices: `(n,)` int64, strictly ascending: row r of the latents encodes sample
            `indices[r]`.
        groups: `(n,)` int64: row r belongs to pilot `groups[r]` in 0..K-1. None: the rows are the
            pilots (original pilots, K = n).
    """

    indices: Tensor
    groups: Tensor | None = None
    count: int = field(init=False)
    """K, the number of pilots."""

    def __post_init__(self) -> None:
        indices = check_labels("indices", self.indices)
        if int(indices[0]) < 0 or bool((indices.diff() <= 0).any()):
            raise InputError(f"indices must be strictly ascending from 0 on, got {indices}; sort")
        count = len(indices) if self.groups is None else _check_groups(self.groups, len(indices))
        object.__setattr__(self, "count", count)

    def pool(self, latents: Tensor) -> Tensor:
        r"""Return the pilots `(K, d)` of the latents `(n, d)`; differentiable.

        Original pilots are the latents themselves; prototype pilots are the centroids
        $\bar f_{i,c} = \frac{1}{|S_c|} \sum_{k \in S_c} f_{\varphi_i}(x_i^k)$, c = 0..K-1.
        """
        check_matrix("latents", latents)
        if latents.ndim != 2 or len(latents) != len(self.indices):
            raise ShapeError(
                f"latents must have shape ({len(self.indices)}, d), one row per selected sample, "
                f"got {tuple(latents.shape)}; encode the samples selection.indices in that order"
            )
        if self.groups is None:
            return latents
        groups = self.groups.to(latents.device)
        sums = latents.new_zeros(self.count, latents.shape[1]).index_add(0, groups, latents)
        return sums / torch.bincount(groups, minlength=self.count).to(latents.dtype)[:, None]

    def fingerprint(self) -> str:
        """Return a text that is equal for two selections exactly if they give the same pilots."""
        groups = None if self.groups is None else self.groups.tolist()
        return f"{self.indices.tolist()} {groups}"


def check_labels(name: str, x: Tensor) -> Tensor:
    """Return the int64 labels `(M,)` on the CPU."""
    _check_vector(name, x)
    if x.dtype != torch.int64:
        raise DtypeError(f"{name} must be int64, got {x.dtype}; convert it with .long()")
    return x.cpu()


def _check_vector(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name} must be a tensor, got {type(x).__name__}; use torch.as_tensor")
    if x.ndim != 1:
        raise ShapeError(f"{name} must have shape (M,), got {tuple(x.shape)}; flatten it")
    if len(x) == 0:
        raise EmptyInputError(f"{name} is empty; expected one value per shared sample")


def _check_groups(given: Tensor, rows: int) -> int:
    groups: list[int] = check_labels("groups", given).tolist()
    if len(groups) != rows:
        raise InputError(f"{rows} indices need one group each, got {len(groups)} groups")
    if set(groups) != set(range(max(groups) + 1)):
        raise InputError(
            f"groups must number the pilots from 0 without gaps, got {sorted(set(groups))}"
        )
    return max(groups) + 1
