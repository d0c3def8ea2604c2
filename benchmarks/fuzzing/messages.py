"""The decoder of messages."""

import torch

from fuzzing.targets import Target, WronglyAcceptedError
from sheafed.errors import MessageError
from sheafed.transport import Message, decode, encode
from sheafed.transport.header import DTYPES

LIMIT = 1 << 20
PREFIX = 9
"""Bytes before the JSON of a header; the last four are its length."""


def target() -> Target:
    return Target("messages", _seeds(), _check, _repair)


def _seeds() -> list[bytes]:
    every = {name: torch.ones(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    latents = {"z": torch.linspace(-1, 1, 32).view(8, 4)}
    messages = [
        Message("round", 3, "ada", "bo", latents, {"scale": 0.5}),
        Message("hello", 0, "ada", "bo", fields={"dimension": 4, "name": "ö", "late": None}),
        Message("round", 2**40, "ada", "bo", every),
        Message("answer", 1, "a", "b", {"empty": torch.zeros(0, 3), "scalar": torch.tensor(1.0)}),
    ]
    return [encode(message).data for message in messages]


def _check(data: bytes) -> bool:
    try:
        message = decode(data, LIMIT)
    except MessageError:
        return False
    if encode(message, LIMIT).data != data:
        raise WronglyAcceptedError(f"{message} has other bytes")
    return True


def _repair(data: bytes) -> bytes:
    """Let the header be as long as it says, up to the last brace."""
    end = data.rfind(b"}", PREFIX) + 1
    if end < PREFIX:
        return data
    text = data[PREFIX:end]
    text += b" " * (-(PREFIX + len(text)) % 8)
    return data[:5] + len(text).to_bytes(4, "little") + text + data[end:].lstrip(b" ")
