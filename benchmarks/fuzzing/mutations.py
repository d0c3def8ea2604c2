"""Damage to valid inputs: what a broken disk, a cut line or an attacker makes of them."""

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 1,
)
"""At which sizes and counters overflow, or are one too large."""
TOKENS = (
    *(b"null", b"true", b"[]", b"{}", b'""', b"-1", b"0", b"1e308", b"1e999", b"NaN", b"-0.0"),
    *(b"9" * 30, b"9" * 5000, b"9223372036854775808", b"[" * 3000, b'{"a":' * 3000),
    *(b"[" * 400 + b"]" * 400, b'{"tuple":[' * 300 + b"]}" * 300),
    *(b'"\\ud800"', b'"\\u0000"', b"\xff\xfe", b"\n", b'"', b"\\", b"="),
)
"""What a reader of JSON or TOML may find where it expects something else."""
VALUE = re.compile(rb'-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|"[^"\\]{0,60}"|true|false|null')


def mutate(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Return a damaged copy of some bytes.

    Args:
        data: a valid input.
        draw: decides everything.
        others: further valid inputs, of which parts may be spliced in.
    """
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        data = draw.choice(OPERATIONS)(data, draw, others)
    return data


def flip_bit(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x01"
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def set_byte(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def truncate(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def delete(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    begin, end = _slice(data, draw)
    return data[:begin] + data[end:]


def repeat(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    begin, end = _slice(data, draw)
    return data[:end] + data[begin:end] * draw.choice((1, 1, 2, 50)) + data[end:]


def insert(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.choice((1, 2, 8, 100))) + data[at:]


def splice(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Put a part of another valid input in the place of a part of this one."""
    other = draw.choice(list(others)) if others else data
    (begin, end), (first, last) = _slice(data, draw), _slice(other, draw)
    return data[:begin] + other[first:last] + data[end:]


def edit_length(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Write a number that is often a boundary where a binary length may be."""
    size = draw.choice((1, 2, 4, 8))
    at = draw.choice((0, 4, 5, 8, draw.randrange(len(data) + 1)))
    before = int.from_bytes(data[at : at + size], "little")
    number = draw.choice((*NUMBERS, before + 1, before - 1, before * 2, len(data)))
    return data[:at] + (number % 2 ** (8 * size)).to_bytes(size, "little") + data[at + size :]


def edit_value(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace a value of JSON or TOML by something else, often of another type."""
    found = [match.span() for match in VALUE.finditer(data)]
    begin, end = draw.choice(found) if found else _slice(data, draw)
    number = str(draw.choice(NUMBERS) * draw.choice((1, -1))).encode()
    return data[:begin] + draw.choice((*TOKENS, number, number, number)) + data[end:]


def swap_values(data: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Exchange two values of JSON or TOML, so that all are still there and in no wrong format."""
    found = [match.span() for match in VALUE.finditer(data)]
    if len(found) < 2:
        return data
    (a, b), (c, d) = sorted(draw.sample(found, 2))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


OPERATIONS: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    *(flip_bit, set_byte, truncate, delete, repeat, insert, splice, edit_length),
    *(edit_value, edit_value, edit_value, swap_values),
)


def _slice(data: bytes, draw: random.Random) -> tuple[int, int]:
    begin = draw.randrange(len(data) + 1)
    return begin, min(len(data), begin + draw.choice((1, 2, 4, 8, 32, 200)))
