"""The IDX format of MNIST and its relatives: a magic number, the sizes, then the bytes."""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING

from sheafed.errors import DataFormatError

if TYPE_CHECKING:
    from torch import Tensor

GZIP = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, name: str) -> Tensor:
    """Return the uint8 tensor that the bytes of an IDX file encode, compressed or not.

    The bytes are `0 0 type k`, then k sizes as big-endian 32-bit numbers, then one byte per
    entry. Errors name the file as `name`.
    """
    import torch  # here: a list of data sets does without

    content = gunzip(content, name)
    if len(content) < 4 or content[:2] != b"\0\0" or content[3] == 0:
        raise DataFormatError(
            f"{name} is not an IDX file: it must begin with two zero bytes, a type and a number "
            f"of dimensions, got {content[:4].hex(' ') or 'nothing'}"
        )
    if content[2] != UNSIGNED_BYTE:
        raise DataFormatError(
            f"{name} holds IDX type 0x{content[2]:02x}, but only unsigned bytes (0x08) are read; "
            "convert it"
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataFormatError(
            f"{name} must list {dimensions} sizes after its magic number, but ends after "
            f"{len(content)} bytes; fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataFormatError(
            f"{name} must hold {math.prod(shape)} bytes for its shape {shape}, got "
            f"{len(content) - start}; fetch it again"
        )
    if not math.prod(shape):
        raise DataFormatError(f"{name} is empty: its shape is {shape}; fetch it again")
    # A bytearray, since torch warns of tensors over memory that cannot be written.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).reshape(shape)


def gunzip(content: bytes, name: str, limit: int = 0) -> bytes:
    """Undo gzip if the content is compressed, giving at most `limit` bytes if that is not 0."""
    if not content.startswith(GZIP):
        return content
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = stream.decompress(content, limit and limit + 1)
    except zlib.error as error:
        raise DataFormatError(f"{name} cannot be decompressed ({error}); fetch it again") from error
    if limit and len(plain) > limit:
        raise DataFormatError(
            f"{name} decompresses to more than the {limit} bytes expected; it is another file"
        )
    if not stream.eof:
        raise DataFormatError(f"{name} is cut short: its gzip stream does not end; fetch it again")
    return plain
