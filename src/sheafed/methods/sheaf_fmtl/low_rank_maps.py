r"""Large matrices that need little memory: a structured random start and rank-one terms.

Sheaf-FMTL's restriction maps act on all parameters of an agent. A map starts at random and every
exchange adds a rank-one term to it, so it is known exactly from its seed and its history:
$P(t) = P_0 - \sum_{s < t} m(s)\, \theta(s)^\top$. The long vectors $\theta(s)$ are the same for all
maps of an agent; only the short m(s) differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sheafed.devices import CPU
from sheafed.errors import InputError

COLUMNS = 1 << 14
"""How many columns are worked on at once when a dense matrix is made."""


class HadamardStart:
    r"""A random matrix $P_0 = c\, S H D$, `(rows, columns)`, that is never stored.

    H is Sylvester's Hadamard matrix, D flips the sign of each column at random, and S picks
    different rows at random: the subsampled randomised Hadamard transform (Ailon and Chazelle 2006,
    Tropp 2011). If the number of columns is no power of two, H is of the next one and only its
    first columns are used. Every entry is c or -c, as of a matrix of independent random signs, and
    as for that one $\mathbb E \|P_0 x\|^2 = c^2\, \mathrm{rows}\, \|x\|^2$ for every x.

    A product takes $N \log N$ time whatever the number of rows. On the paper's fifteen agents, on
    one thread, all products $P_0 \theta$ and $P_0^\top r$ of an exchange (84 maps) take 0.7 s and
    no memory to speak of, for every $\gamma$. Independent signs take 14 s at $\gamma = 10^{-3}$,
    regenerated from a seed or stored as bits alike, since unpacking them costs most, and in
    proportion to $\gamma$.

    Args:
        rows: at most as many as columns.
        columns: how many numbers it acts on.
        scale: c.
        stream: which matrix it is.
        dtype: in which products are computed.
        device: likewise.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        scale: float,
        stream: torch.Generator,
        dtype: torch.dtype,
        device: torch.device = CPU,
    ) -> None:
        if not 1 <= rows <= columns:
            raise InputError(f"rows must be from 1 to the {columns} columns, got {rows}")
        self.rows, self.columns, self.scale = rows, columns, scale
        self.dtype, self.device = dtype, device
        self._order = 1 << (columns - 1).bit_length()
        self._chosen = torch.randperm(self._order, generator=stream)[:rows].to(device).clone()
        bits = torch.randint(0, 2, (columns,), generator=stream, dtype=torch.int8)
        self._signs = (2 * bits - 1).to(device)

    def project(self, x: Tensor) -> Tensor:
        """Return P0 x, `(rows,)`."""
        padded = torch.zeros(self._order, dtype=self.dtype, device=self.device)
        torch.mul(x, self._signs, out=padded[: self.columns])
        return self.scale * walsh_hadamard(padded)[self._chosen]

    def pull_back(self, r: Tensor) -> Tensor:
        """Return the transpose of P0 times r, `(columns,)`."""
        spread = torch.zeros(self._order, dtype=self.dtype, device=self.device)
        spread[self._chosen] = self.scale * r
        return walsh_hadamard(spread)[: self.columns] * self._signs

    def dense(self) -> Tensor:
        matrix = torch.empty(self.rows, self.columns, dtype=self.dtype, device=self.device)
        for k, row in enumerate(self._chosen.tolist()):
            matrix[k] = _hadamard_row(row, self._order, self.dtype)[: self.columns].to(self.device)
        return matrix.mul_(self._signs).mul_(self.scale)


class StackedMaps:
    r"""All maps of one agent, one above the other: $P = P_0 - \sum_s m(s)\, \theta(s)^\top$.

    Each `move` keeps one vector as long as P is wide. Once there are as many as P has rows the
    dense matrix is no larger, and takes their place: memory and time stay bounded by what dense
    maps need, twice that during the change.
    """

    def __init__(self, starts: Sequence[HadamardStart]) -> None:
        self.starts = list(starts)
        self.rows = sum(start.rows for start in starts)
        self._thetas: list[Tensor] = []
        self._moves: list[Tensor] = []
        self._matrix: Tensor | None = None

    def __len__(self) -> int:
        """Return how many rank-one terms are kept."""
        return len(self._thetas)

    @property
    def is_dense(self) -> bool:
        """Whether the matrix has replaced its rank-one terms."""
        return self._matrix is not None

    def project(self, theta: Tensor) -> Tensor:
        r"""Return $P \theta$, `(rows,)`."""
        if self._matrix is not None:
            return self._matrix @ theta
        result = torch.cat([start.project(theta) for start in self.starts])
        # Not as one matrix product: stacking the history would double its memory.
        for past, move in zip(self._thetas, self._moves, strict=True):
            result.sub_(move * torch.dot(past, theta))
        return result

    def pull_back(self, r: Tensor) -> Tensor:
        r"""Return $P^\top r$, `(columns,)`."""
        if self._matrix is not None:
            return self._matrix.mT @ r
        parts = torch.split(r, [start.rows for start in self.starts])
        result = torch.zeros(self.starts[0].columns, dtype=r.dtype, device=r.device)
        for start, part in zip(self.starts, parts, strict=True):
            if bool(part.any()):
                result.add_(start.pull_back(part))
        for past, move in zip(self._thetas, self._moves, strict=True):
            result.add_(past, alpha=-float(torch.dot(move, r)))
        return result

    def move(self, step: Tensor, theta: Tensor) -> None:
        r"""Subtract $m\, \theta^\top$; both vectors are kept, and must not change afterwards."""
        if self._matrix is not None:
            self._matrix.addr_(step, theta, alpha=-1)
            return
        self._moves.append(step)
        self._thetas.append(theta)
        if len(self) >= self.rows:
            self._matrix = self.dense()
            self._thetas, self._moves = [], []

    def dense(self) -> Tensor:
        """Return a copy of P, `(rows, columns)`."""
        if self._matrix is not None:
            return self._matrix.clone()
        first = self.starts[0]
        matrix = torch.empty(self.rows, first.columns, dtype=first.dtype, device=first.device)
        parts = torch.split(matrix, [start.rows for start in self.starts])
        for own, part in zip(self.starts, parts, strict=True):
            part.copy_(own.dense())
        if self._moves:
            moves = torch.stack(self._moves, dim=1)
            for start in range(0, matrix.shape[1], COLUMNS):
                block = slice(start, start + COLUMNS)
                matrix[:, block] -= moves @ torch.stack([past[block] for past in self._thetas])
        return matrix

    def state(self) -> dict[str, Any]:
        return {
            "thetas": list(self._thetas),
            "moves": list(self._moves),
            "matrix": None if self._matrix is None else self._matrix.clone(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, with the same starts."""
        self._thetas, self._moves = list(state["thetas"]), list(state["moves"])
        self._matrix = None if state["matrix"] is None else state["matrix"].clone()


def walsh_hadamard(x: Tensor) -> Tensor:
    r"""Return $H x$ for Sylvester's Hadamard matrix H of the order of x, a power of two.

    H is a Kronecker product, so x is reshaped and multiplied by a small H along each axis: matrix
    products of order up to 128 are faster than the butterflies that need fewest operations.
    """
    order = len(x)
    if order < 1 or order & (order - 1):
        raise InputError(f"the length must be a power of two, got {order}")
    left, remaining = 1, order.bit_length() - 1
    while remaining:
        axes = -(-remaining // 7)
        bits = -(-remaining // axes)
        small = _hadamard(bits, x.dtype, x.device)
        remaining -= bits
        if remaining:
            x = torch.matmul(small, x.reshape(left, 1 << bits, 1 << remaining))
        else:
            x = x.reshape(left, 1 << bits) @ small
        left <<= bits
    return x.reshape(order)


@cache
def _hadamard(bits: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    order = 1 << bits
    return torch.stack([_hadamard_row(row, order, dtype) for row in range(order)]).to(device)


def _hadamard_row(row: int, order: int, dtype: torch.dtype) -> Tensor:
    """Return a row of H: the Kronecker product of (1, 1) or (1, -1), by the bits of its number."""
    result = torch.ones(1, dtype=dtype)
    for bit in range(order.bit_length() - 1):
        result = torch.cat([result, -result if row >> bit & 1 else result])
    return result
