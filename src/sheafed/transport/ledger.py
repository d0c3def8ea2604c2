"""How many bytes crossed the wire: one row per message sent, delivered or not."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.transport.codec import Counted
from sheafed.transport.message import Message

Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]


class Row(NamedTuple):
    """One message sent."""

    round: int
    sender: str
    receiver: str
    kind: str
    header_bytes: int
    payload_bytes: int


class Traffic(NamedTuple):
    """A sum over messages."""

    messages: int
    header_bytes: int
    payload_bytes: int


class LedgerState(TypedDict):
    """A ledger as plain data: a tensor for safetensors and names for JSON."""

    rows: Tensor
    """int64 `(n, 6)`: the columns of `Row`, names as their indices in `names`."""
    names: list[str]
    sums: NotRequired[Tensor]
    """int64 `(m, 7)`: messages that were merged, as round, sender, receiver, kind, messages, header
    and payload bytes."""
    width: NotRequired[int]
    """The rounds that are merged into one."""


class Ledger:
    """Counts encoded bytes, those of the tensors (payload) apart from the rest (header).

    Args:
        limit: the largest number of rows to keep, for an agent that sends messages without end.
            When there are more, those of the same edge and kind in neighbouring rounds are merged,
            as few rounds as it takes. Sums per edge and kind stay exact; `per_round` then counts
            merged messages in the first of their rounds.

    >>> ledger = Ledger()
    >>> ledger.record(0, "ada", "bo", "latents", header_bytes=120, payload_bytes=4096)
    >>> ledger.record(1, "bo", "ada", "latents", header_bytes=120, payload_bytes=2048)
    >>> ledger.bytes_sent(), ledger.payload_bytes("latents")
    (6384, 6144)
    >>> ledger.per_edge()["bo", "ada"]
    Traffic(messages=1, header_bytes=120, payload_bytes=2048)
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._cells = array("q")  # six per row, names as indices: 48 bytes per message
        self._sums: Table = np.zeros((0, 7), dtype=np.int64)
        self._width = 1
        self._indices: dict[str, int] = {}
        self._totals: dict[str, Traffic] = {}  # per kind: read every round by progress bars

    def __len__(self) -> int:
        """The messages that are kept as rows of their own."""
        return len(self._cells) // 6

    def record(
        self,
        round: int,
        sender: str,
        receiver: str,
        kind: str,
        header_bytes: int,
        payload_bytes: int,
    ) -> None:
        """Add one message."""
        if min(round, header_bytes, payload_bytes) < 0:
            raise InputError(
                "round and byte counts must be at least 0, got "
                f"{(round, header_bytes, payload_bytes)}"
            )
        names = [self._indices.setdefault(n, len(self._indices)) for n in (sender, receiver, kind)]
        self._cells.extend((round, *names, header_bytes, payload_bytes))
        messages, header, payload = self._totals.get(kind, (0, 0, 0))
        self._totals[kind] = Traffic(messages + 1, header + header_bytes, payload + payload_bytes)
        if self._limit is not None and len(self) >= self._limit:
            self._merge(self._limit)

    def count(self, message: Message, size: Counted) -> None:
        """Add one message by the bytes of its encoding."""
        edge = (message.sender, message.receiver)
        self.record(message.round, *edge, message.kind, size.header_bytes, size.payload_bytes)

    def bytes_sent(self, kind: str | None = None) -> int:
        """Return the bytes of all messages, or of one kind."""
        return sum(total.header_bytes + total.payload_bytes for total in self._of(kind))

    def payload_bytes(self, kind: str | None = None) -> int:
        """Return the bytes of the tensors in all messages, or of one kind."""
        return sum(total.payload_bytes for total in self._of(kind))

    def per_edge(self) -> dict[tuple[str, str], Traffic]:
        """Return the traffic by (sender, receiver)."""
        names = list(self._indices)
        return {(names[i], names[j]): total for (i, j), total in self._sum_by(1, 2).items()}

    def per_round(self) -> dict[int, Traffic]:
        """Return the traffic of each round in which a message was sent, in ascending order."""
        return {round: total for (round,), total in self._sum_by(0).items()}

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[Row]:
        """Yield the messages in the order of sending: all, or those numbered from start to end.

        Those that were merged are not among them.
        """
        names = list(self._indices)
        for k in range(6 * start, 6 * (len(self) if end is None else end), 6):
            round, sender, receiver, kind, header, payload = self._cells[k : k + 6]
            yield Row(round, names[sender], names[receiver], names[kind], header, payload)

    def state(self) -> LedgerState:
        """Return a copy of everything, as one tensor and a short list, or two if some is merged."""
        state = LedgerState(rows=torch.from_numpy(self._table()), names=list(self._indices))
        if len(self._sums):
            state["sums"], state["width"] = torch.from_numpy(self._sums.copy()), self._width
        return state

    def restore(self, state: LedgerState) -> None:
        """Continue from a state in place of what was recorded."""
        other = self.from_state(state)
        self._cells, self._indices, self._totals = other._cells, other._indices, other._totals
        self._sums, self._width = other._sums, other._width

    @classmethod
    def from_state(cls, state: LedgerState) -> "Ledger":
        """Return the ledger whose `state()` this is."""
        rows, names = state["rows"], state["names"]
        sums, width = state.get("sums", torch.zeros(0, 7, dtype=torch.int64)), state.get("width", 1)
        if len(set(names)) != len(names):
            raise InputError(f"names must be unique, got {names}; pass a value of state()")
        _check_table("rows", rows, 6, len(names))
        _check_table("sums", sums, 7, len(names))
        if width < 1:
            raise InputError(f"width must be at least 1, got {width}; pass a value of state()")
        ledger = cls()
        ledger._cells.frombytes(rows.cpu().contiguous().numpy().tobytes())
        ledger._indices = {name: index for index, name in enumerate(names)}
        ledger._sums, ledger._width = sums.cpu().numpy().copy(), width
        ledger._totals = {names[kind]: total for (kind,), total in ledger._sum_by(3).items()}
        return ledger

    def _of(self, kind: str | None) -> list[Traffic]:
        # A copy, because another thread may record the first message of a kind meanwhile.
        return [total for name, total in self._totals.copy().items() if kind in (None, name)]

    def _table(self) -> Table:
        # A slice, because an array cannot grow while NumPy shares its memory.
        return np.asarray(self._cells[:], dtype=np.int64).reshape(-1, 6)

    def _everything(self) -> Table:
        """Return what was merged and the rows, with the number of messages in each."""
        return np.concatenate([self._sums, np.insert(self._table(), 4, 1, axis=1)])

    def _merge(self, limit: int) -> None:
        """Merge all rows, so many rounds into one that at most half of the limit is left."""
        table = self._everything()
        while True:
            table[:, 0] -= table[:, 0] % self._width
            keys, sums = _group(table, (0, 1, 2, 3))
            if len(keys) <= limit // 2 or not keys[:, 0].any():
                break
            self._width *= 2
        self._sums, self._cells = np.concatenate([keys, sums], axis=1), array("q")

    def _sum_by(self, *columns: int) -> dict[tuple[int, ...], Traffic]:
        """Sum over the rows with equal values in these columns, in ascending order of those."""
        keys, sums = _group(self._everything(), columns)
        return {tuple(key): Traffic(*sums[k].tolist()) for k, key in enumerate(keys.tolist())}


def _group(table: Table, columns: tuple[int, ...]) -> tuple[Table, Table]:
    """Return the different values of some columns, and the sums of the last three for each."""
    keys, group = np.unique(table[:, columns], axis=0, return_inverse=True)
    sums = np.zeros((len(keys), 3), dtype=np.int64)
    np.add.at(sums, group.reshape(-1), table[:, 4:])
    return keys, sums


def _check_table(name: str, table: Tensor, columns: int, names: int) -> None:
    if table.dtype != torch.int64 or table.ndim != 2 or table.shape[1] != columns:
        raise InputError(
            f"{name} must be int64 of shape (n, {columns}), got {table.dtype} of shape "
            f"{tuple(table.shape)}; pass a value of state()"
        )
    indices = table[:, 1:4]
    if bool((table < 0).any()) or bool((indices >= names).any()):
        raise InputError(
            f"{name} must be at least 0 and refer to the {names} names, got {int(table.min())} as "
            f"smallest value and {int(indices.max())} as largest index of a name; pass all parts "
            "of one state"
        )
