"""A message as bytes, without pickle, and back, with every byte checked.

The header (see `header`) is followed by the tensors' raw bytes, row-major and little-endian.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as short

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
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise MessageError(
            "layout",
            f"{short(name)} must be a dense tensor with values, got layout {tensor.layout} on "
            f"{tensor.device}; convert it first",
        )
    plain = tensor.detach().resolve_neg().cpu().contiguous()
    return _swap(plain.reshape(-1).view(torch.uint8), plain.dtype.itemsize).numpy().data


def _unpack(payload: memoryview, entries: Iterable[Entry]) -> dict[str, Tensor]:
    memory = bytearray(payload)  # torch warns about read-only memory
    tensors, offset = {}, 0
    for entry in entries:
        dtype = DTYPES[entry.dtype]
        if entry.nbytes == 0:
            tensors[entry.name] = torch.empty(entry.shape, dtype=dtype)
            continue
        raw = torch.frombuffer(memory, dtype=torch.uint8, count=entry.nbytes, offset=offset)
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
