"""A message between two agents, and the check that it is the one that was agreed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from reprlib import repr as short
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from sheafed.errors import MessageError, NonFiniteError
from sheafed.linalg.checks import check_finite

Scalar: TypeAlias = str | int | float | bool | None

MAX_MAGNITUDE = 1e12
"""Numbers up to here can be squared and summed over a whole message in single precision."""


@dataclass(frozen=True, eq=False)
class Message:
    """Named tensors and a few scalars that `sender` sends to `receiver` in one round.

    `kind` names their meaning, e.g. "latents". `fields` are flat JSON scalars: floats are finite
    and ints fit in 64 bits. Both mappings are copied and read-only; the tensors are not copied.

    >>> message = Message("latents", 3, "ada", "bo", {"z": torch.zeros(8, 4)}, {"scale": 0.5})
    >>> print(message)
    message 'latents' from 'ada' to 'bo' in round 3
    """

    kind: str
    round: int
    sender: str
    receiver: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    fields: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for reason in ("kind", "sender", "receiver"):
            _check_name(reason, f"{reason} of a message", getattr(self, reason))
        if not _is_int64(self.round) or self.round < 0:
            raise MessageError(
                "round",
                f"round of a message must be an int from 0 to 2**63 - 1, got {short(self.round)}",
            )
        for reason in ("tensors", "fields"):
            given = getattr(self, reason)
            if type(given) is not dict and not isinstance(given, Mapping):
                raise MessageError(
                    reason, f"{reason} of a message must be a mapping, got {short(given)}"
                )
            object.__setattr__(self, reason, MappingProxyType(dict(given)))
        for name, tensor in self.tensors.items():
            _check_name("names", "the name of a tensor", name)
            if not isinstance(tensor, Tensor):
                raise MessageError(
                    "tensors",
                    f"{short(name)} must be a torch tensor, got {type(tensor).__name__}; "
                    "scalars belong in fields",
                )
        for name, value in self.fields.items():
            _check_name("fields", "the name of a field", name)
            _check_scalar(name, value)

    def __str__(self) -> str:
        names = f"{short(self.kind)} from {short(self.sender)} to {short(self.receiver)}"
        return f"message {names} in round {self.round}"


@dataclass(frozen=True)
class TensorSpec:
    """The dtype and shape on which the two ends of an edge have agreed."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def check_message(
    message: Message,
    *,
    kind: str,
    round: int,
    sender: str,
    receiver: str,
    tensors: Mapping[str, TensorSpec],
) -> None:
    """Raise `MessageError` unless the message is exactly the one that was agreed.

    Its `reason` is the first check that fails: kind, round, sender, receiver, names, dtype,
    shape, non-finite, magnitude. Fields are checked by the method.

    >>> message = Message("latents", 3, "ada", "bo", {"z": torch.zeros(8, 4)})
    >>> agreed = {"kind": "latents", "round": 3, "sender": "ada", "receiver": "bo"}
    >>> check_message(message, **agreed, tensors={"z": TensorSpec(torch.float32, (8, 4))})
    >>> try:
    ...     check_message(message, **agreed, tensors={"z": TensorSpec(torch.float32, (8, 5))})
    ... except MessageError as problem:
    ...     print(problem.reason)
    shape
    """
    agreed = {"kind": kind, "round": round, "sender": sender, "receiver": receiver}
    for reason, expected in agreed.items():
        _require(message, reason, reason, getattr(message, reason), expected)
    _require(message, "names", "tensors", sorted(message.tensors), sorted(tensors))
    for name, spec in tensors.items():
        tensor = message.tensors[name]
        _require(message, "dtype", f"dtype of {name}", tensor.dtype, spec.dtype)
        _require(message, "shape", f"shape of {name}", tuple(tensor.shape), spec.shape)
        _check_magnitude(message, name, tensor)


def _check_magnitude(message: Message, name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point() or not tensor.numel():
        return
    low, high = (float(value) for value in tensor.aminmax())  # in one pass; NaN if any is
    if low >= -MAX_MAGNITUDE and high <= MAX_MAGNITUDE:
        return
    try:
        check_finite(name, tensor)
    except NonFiniteError as problem:
        raise MessageError("non-finite", f"{message}: {problem}") from problem
    raise MessageError(
        "magnitude",
        f"{message}: {name} holds numbers from {low:.3g} to {high:.3g}, at most "
        f"{MAX_MAGNITUDE:g} in size is accepted; check the model that produced them",
    )


def _require(message: Message, reason: str, what: str, given: object, expected: object) -> None:
    if given != expected:
        raise MessageError(
            reason,
            f"{message}: {what} must be {expected!r}, got {short(given)}; "
            "both ends must run the same configuration",
        )


def _check_name(reason: str, what: str, value: object) -> None:
    if type(value) is str and value and value.isascii():  # most are
        return
    if not isinstance(value, str) or not value:
        raise MessageError(reason, f"{what} must be a non-empty str, got {short(value)}")
    _check_text(reason, what, value)


def _check_text(reason: str, what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        raise MessageError(
            reason, f"{what} must be encodable as UTF-8, got {short(value)}: {problem}"
        ) from problem


def _check_scalar(name: str, value: object) -> None:
    if isinstance(value, str):
        _check_text("fields", f"field {short(name)}", value)
        return
    finite = isinstance(value, float) and isfinite(value)
    if not (value is None or isinstance(value, bool) or finite or _is_int64(value)):
        raise MessageError(
            "fields",
            f"field {short(name)} must be a str, 64-bit int, finite float, bool or None, got "
            f"{short(value)}; arrays belong in tensors",
        )


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
