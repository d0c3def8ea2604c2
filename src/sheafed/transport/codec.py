"""A message as bytes, without pickle, and back, with every byte checked.

The header (see `header`) is followed by the tensors' raw bytes, row-major and little-endian.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as short
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import MessageError
from sheafed.transport.header import (
    DTYPES,
    Entry,
    read_header,
    sorted_entries,
    write_header,
)
from sheafed.transport.message import Message

MAX_BYTES = 1 << 28
_JSON_TYPES = (str, int, float, bool, type(None))


class Counted(Protocol):
    """The bytes of one message: of the header and of the tensors (payload)."""

    @property
    def header_bytes(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...


@dataclass(frozen=True)
class Encoded:
    """The bytes of one message: the header, then the tensors (payload)."""

    data: bytes
    header_bytes: int

    @property
    def payload_bytes(self) -> int:
        """The sum of the tensors' numel × itemsize."""
        return len(self.data) - self.header_bytes


def encode(message: Message, limit: int = MAX_BYTES) -> Encoded:
    """Return the bytes of a message.

    Raises `MessageError` if `decode` would refuse them, so that the error appears at the sender.

    >>> encoded = encode(Message("latents", 0, "ada", "bo", {"z": torch.zeros(8, 4)}))
    >>> len(encoded.data) - encoded.header_bytes == encoded.payload_bytes == 8 * 4 * 4
    True
    """
    entries = sorted_entries(message, limit)
    header = write_header(message, entries)
    _check_size(len(header) + sum(entry.nbytes for entry in entries), limit)
    payload = (_pack(entry.name, message.tensors[entry.name]) for entry in entries)
    return Encoded(b"".join([header, *payload]), len(header))


class Handed(NamedTuple):
    """What the receiver of a message in the same process is given, and the bytes it stands for."""

    message: Message
    header_bytes: int
    payload_bytes: int


def hand_over(message: Message, limit: int = MAX_BYTES) -> Handed:
    """Return what `decode` makes of the bytes of a message, without making these.

    Its tensors are copies, in the layout of decoded ones. All that `encode` refuses is refused,
    and bytes are counted as `encode` has them.

    >>> message = Message("latents", 0, "ada", "bo", {"z": torch.zeros(8, 4)})
    >>> handed, encoded = hand_over(message), encode(message)
    >>> handed[1:] == (encoded.header_bytes, encoded.payload_bytes)
    True
    """
    entries = sorted_entries(message, limit)
    header_bytes = len(write_header(message, entries))
    payload_bytes = sum(entry.nbytes for entry in entries)
    _check_size(header_bytes + payload_bytes, limit)
    tensors = {entry.name: _copy(entry.name, message.tensors[entry.name]) for entry in entries}
    fields = dict(sorted(message.fields.items()))
    if not all(type(value) in _JSON_TYPES for value in fields.values()):
        fields = json.loads(json.dumps(fields))  # e.g. NumPy's floats, which are floats
    names = str(message.kind), str(message.sender), str(message.receiver)  # plain, as in JSON
    received = Message(names[0], int(message.round), names[1], names[2], tensors, fields)
    return Handed(received, header_bytes, payload_bytes)


def decode(data: bytes | bytearray | memoryview, limit: int = MAX_BYTES) -> Message:
    """Return the message with these bytes; its tensors do not share memory with them.

    Raises `MessageError`, and nothing else, unless `encode` could have written them.

    >>> decode(encode(Message("hello", 0, "ada", "bo", fields={"dimension": 4})).data).fields
    mappingproxy({'dimension': 4})
    >>> decode(b"not a message")
    Traceback (most recent call last):
    sheafed.errors.MessageError: a message begins with b'SHFD', got b'not '; the peer is not sheafed
    """
    _check_size(len(data), limit)
    view = memoryview(data)
    header = read_header(view, limit)
    if len(data) != header.message_size:
        raise MessageError(
            "size",
            f"the header lists tensors for a message of {header.message_size} bytes, got "
            f"{len(data)}",
        )
    tensors = _unpack(view[header.size :], header.entries)
    return Message(tensors=tensors, **header.attributes)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise MessageError(
            "size",
            f"a message may have {limit} bytes, got {size}; send fewer pilots or raise the limit",
        )


def _pack(name: str, tensor: Tensor) -> memoryview:
    _check_dense(name, tensor)
    plain = tensor.detach().resolve_neg().cpu().contiguous()
    return _swap(plain.reshape(-1).view(torch.uint8), plain.dtype.itemsize).numpy().data


def _copy(name: str, tensor: Tensor) -> Tensor:
    _check_dense(name, tensor)
    plain = tensor.detach().resolve_neg()
    return plain.cpu().clone(memory_format=torch.contiguous_format)


def _check_dense(name: str, tensor: Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise MessageError(
            "layout",
            f"{short(name)} must be a dense tensor with values, got layout {tensor.layout} on "
            f"{tensor.device}; convert it first",
        )


def _unpack(payload: memoryview, entries: Iterable[Entry]) -> dict[str, Tensor]:
    tensors, offset = {}, 0
    for entry in entries:
        dtype = DTYPES[entry.dtype]
        if entry.nbytes == 0:
            tensors[entry.name] = torch.empty(entry.shape, dtype=dtype)
            continue
        # Aligned as torch has it: products of the same numbers differ in bits by alignment.
        raw = torch.empty(entry.nbytes, dtype=torch.uint8)
        raw.numpy()[:] = np.frombuffer(payload, np.uint8, entry.nbytes, offset)
        if dtype is torch.bool and bool((raw > 1).any()):
            raise MessageError(
                "payload", f"{short(entry.name)} must hold bytes 0 and 1, got {int(raw.max())}"
            )
        tensors[entry.name] = _swap(raw, dtype.itemsize).view(dtype).view(entry.shape)
        offset += entry.nbytes
    return tensors


def _swap(raw: Tensor, itemsize: int) -> Tensor:
    """Convert between this machine's byte order and the wire's."""
    return raw if sys.byteorder == "little" else raw.view(-1, itemsize).flip(1).reshape(-1)
