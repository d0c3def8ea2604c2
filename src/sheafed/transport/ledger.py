"""How many bytes crossed the wire: one row per message sent, delivered or not."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.transport.codec import Encoded
from sheafed.transport.message import Message


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


class Ledger:
    """Counts encoded bytes, those of the tensors (payload) apart from the rest (header).

    >>> ledger = Ledger()
    >>> ledger.record(0, "ada", "bo", "latents", header_bytes=120, payload_bytes=4096)
    >>> ledger.record(1, "bo", "ada", "latents", header_bytes=120, payload_bytes=2048)
    >>> ledger.bytes_sent(), ledger.payload_bytes("latents")
    (6384, 6144)
    >>> ledger.per_edge()["bo", "ada"]
    Traffic(messages=1, header_bytes=120, payload_bytes=2048)
    """

    def __init__(self) -> None:
        self._cells = array("q")  # six per row, names as indices: 48 bytes per message
        self._indices: dict[str, int] = {}
        self._totals: dict[str, Traffic] = {}  # per kind: read every round by progress bars

    def __len__(self) -> int:
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

    def count(self, message: Message, encoded: Encoded) -> None:
        """Add one encoded message."""
        edge = (message.sender, message.receiver)
        self.record(message.round, *edge, message.kind, encoded.header_bytes, encoded.payload_bytes)

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
        """Yield the messages in the order of sending: all, or those numbered from start to end."""
        names = list(self._indices)
        for k in range(6 * start, 6 * (len(self) if end is None else end), 6):
            round, sender, receiver, kind, header, payload = self._cells[k : k + 6]
            yield Row(round, names[sender], names[receiver], names[kind], header, payload)

    def state(self) -> LedgerState:
        """Return a copy of everything, as one tensor and a short list."""
        return LedgerState(rows=torch.from_numpy(self._table()), names=list(self._indices))

    def restore(self, state: LedgerState) -> None:
        """Continue from a state in place of what was recorded."""
        other = self.from_state(state)
        self._cells, self._indices, self._totals = other._cells, other._indices, other._totals

    @classmethod
    def from_state(cls, state: LedgerState) -> "Ledger":
        """Return the ledger whose `state()` this is."""
        rows, names = state["rows"], state["names"]
        if len(set(names)) != len(names):
            raise InputError(f"names must be unique, got {names}; pass a value of state()")
        if rows.dtype != torch.int64 or rows.ndim != 2 or rows.shape[1] != 6:
            raise InputError(
                f"rows must be int64 of shape (n, 6), got {rows.dtype} of shape "
                f"{tuple(rows.shape)}; pass a value of state()"
            )
        indices = rows[:, 1:4]
        if bool((rows < 0).any()) or bool((indices >= len(names)).any()):
            raise InputError(
                f"rows must be at least 0 and refer to the {len(names)} names, got "
                f"{int(rows.min())} as smallest value and {int(indices.max())} as largest index "
                "of a name; pass both parts of one state"
            )
        ledger = cls()
        ledger._cells.frombytes(rows.cpu().contiguous().numpy().tobytes())
        ledger._indices = {name: index for index, name in enumerate(names)}
        ledger._totals = {names[kind]: total for (kind,), total in ledger._sum_by(3).items()}
        return ledger

    def _of(self, kind: str | None) -> list[Traffic]:
        # A copy, because another thread may record the first message of a kind meanwhile.
        return [total for name, total in self._totals.copy().items() if kind in (None, name)]

    def _table(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        # A slice, because an array cannot grow while NumPy shares its memory.
        return np.asarray(self._cells[:], dtype=np.int64).reshape(-1, 6)

    def _sum_by(self, *columns: int) -> dict[tuple[int, ...], Traffic]:
        """Sum over the rows with equal values in these columns, in ascending order of those."""
        table = self._table()
        keys, group = np.unique(table[:, columns], axis=0, return_inverse=True)
        sums = np.zeros((len(keys), 3), dtype=np.int64)
        np.add.at(sums, group.reshape(-1), np.insert(table[:, 4:], 0, 1, axis=1))
        return {tuple(key): Traffic(*sums[k].tolist()) for k, key in enumerate(keys.tolist())}
