"""The first part of an encoded message: its attributes, and which tensors follow.

    "SHFD" | version, 1 byte | length of the JSON, 4 bytes | JSON

Numbers are little-endian. The JSON is compact UTF-8 with sorted keys, padded with spaces so that
the tensors begin at a multiple of 8; each is listed in it as `[name, dtype, shape]`. They are
ordered by decreasing item size and then by name, so all are aligned without gaps. A message has
exactly one valid header, and any other is refused.
"""

import json
import struct
from math import prod
from reprlib import repr as short
from typing import Any, NamedTuple

import torch

from sheafed.errors import MessageError
from sheafed.transport.message import Message

MAGIC, VERSION = b"SHFD", 1
MAX_JSON_BYTES = 1 << 16
MAX_DIMENSIONS = 8
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
_PREFIX = struct.Struct("<4sBI")
_ALIGNMENT = max(dtype.itemsize for dtype in DTYPES.values())
_KEYS = {"fields", "kind", "receiver", "round", "sender", "tensors"}


class Entry(NamedTuple):
    """One tensor as the header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The tensor's share of the payload."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


class Header(NamedTuple):
    """A header that has been read and checked, except for the checks of `Message`."""

    size: int
    entries: list[Entry]
    attributes: dict[str, Any]
    """Those of the `Message` other than its tensors."""

    @property
    def message_size(self) -> int:
        """The bytes of the whole message."""
        return self.size + sum(entry.nbytes for entry in self.entries)


def sorted_entries(message: Message, limit: int) -> list[Entry]:
    """Return the message's tensors, checked, in the order in which they are sent."""
    entries = [
        Entry(name, _dtype_name(tensor.dtype), tuple(tensor.shape))
        for name, tensor in message.tensors.items()
    ]
    _check_entries(entries, limit)
    return sorted(entries, key=_order)


def _dtype_name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def write_header(message: Message, entries: list[Entry]) -> bytes:
    """Return the header of a message whose tensors are sent in the order of `entries`."""
    framed = _frame(
        {
            "fields": dict(message.fields),
            "kind": message.kind,
            "receiver": message.receiver,
            "round": message.round,
            "sender": message.sender,
            "tensors": entries,
        }
    )
    _check_json_size(len(framed) - _PREFIX.size)
    return framed


def read_header(data: memoryview, limit: int) -> Header:
    """Return the header at the start of `data`; raise `MessageError` if there is no valid one."""
    if len(data) < _PREFIX.size:
        raise MessageError("size", f"a message has at least {_PREFIX.size} bytes, got {len(data)}")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise MessageError(
            "magic", f"a message begins with {MAGIC!r}, got {magic!r}; the peer is not sheafed"
        )
    if version != VERSION:
        raise MessageError(
            "version",
            f"a message of format {VERSION} is expected, got format {version}; "
            "install the same release at both ends",
        )
    _check_json_size(length)
    size = _PREFIX.size + length
    if len(data) < size:
        raise MessageError("size", f"the header has {size} bytes, got a message of {len(data)}")
    attributes = _parse(bytes(data[:size]))
    return Header(size, _read_entries(attributes.pop("tensors"), limit), attributes)


def _check_json_size(length: int) -> None:
    if length > MAX_JSON_BYTES:
        raise MessageError(
            "header",
            f"the JSON of a message may have {MAX_JSON_BYTES} bytes, got {length}; "
            "send long values as tensors",
        )


def _frame(header: dict[str, Any]) -> bytes:
    text = _JSON.encode(header).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    return _PREFIX.pack(MAGIC, VERSION, len(text)) + text


def _parse(framed: bytes) -> dict[str, Any]:
    try:
        header = json.loads(framed[_PREFIX.size :].decode())
        canonical = _frame(header)
    except (ValueError, RecursionError) as problem:
        raise MessageError(
            "header", f"the header of a message must be JSON: {problem}"
        ) from problem
    if not isinstance(header, dict) or set(header) != _KEYS:
        raise MessageError(
            "header", f"the header must have the keys {sorted(_KEYS)}, got {short(header)}"
        )
    # Also refuses repeated keys, of which json.loads silently keeps the last.
    if canonical != framed:
        raise MessageError(
            "header", f"the header is not the canonical encoding of {short(header)}; use encode"
        )
    return header


def _order(entry: Entry) -> tuple[int, str]:
    return -DTYPES[entry.dtype].itemsize, entry.name


def _read_entries(listed: object, limit: int) -> list[Entry]:
    if not isinstance(listed, list):
        raise MessageError("header", f"tensors must be a list, got {short(listed)}")
    entries = []
    for item in listed:
        match item:
            case [str(name), str(dtype), [*shape]] if all(type(size) is int for size in shape):
                entries.append(Entry(name, dtype, tuple(shape)))
            case _:
                raise MessageError(
                    "header", f"a tensor is listed as [name, dtype, shape], got {short(item)}"
                )
    _check_entries(entries, limit)
    names = {entry.name for entry in entries}
    if entries != sorted(entries, key=_order) or len(names) != len(entries):
        raise MessageError(
            "names",
            "tensors must have unique names and be ordered by item size and name, got "
            f"{short(entries)}",
        )
    return entries


def _check_entries(entries: list[Entry], limit: int) -> None:
    for name, dtype, shape in entries:
        if dtype not in DTYPES:
            raise MessageError(
                "dtype", f"dtype of {short(name)} must be one of {list(DTYPES)}, got {short(dtype)}"
            )
        # An empty tensor can have sizes whose product overflows in torch: count 0 as 1.
        extent = prod(max(size, 1) for size in shape[:MAX_DIMENSIONS]) * DTYPES[dtype].itemsize
        if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0 or extent > limit:
            raise MessageError(
                "shape",
                f"shape of {short(name)} must be at most {MAX_DIMENSIONS} sizes from 0 on that "
                f"span at most {limit} bytes, got {short(shape)}; split the tensor",
            )
