"""What a method returns, checked before it is used: a method may be of the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sheafed.errors import InputError, NonFiniteError
from sheafed.methods.node import Method, Node
from sheafed.transport.message import Message

RESERVED = (
    *("epoch", "round", "agents", "joined"),
    *("misalignment", "validation_score", "bytes_sent", "payload_bytes"),
)
"""The keys of a record that are measured, not logged by a method."""
PREFIXES = ("private_", "communication_", "oracle_", "validation_")
"""How those of metrics begin."""


def checked_node(method: Method, node: Any) -> Node:
    """Return what `node` of a method returned, if it is a node."""
    if not isinstance(node, Node):
        raise InputError(
            f"node(context) of the method {type(method).__name__} must return a "
            f"sheafed.methods.Node, got {_kind(node)}; return the node of the agent"
        )
    return node


def check_label(method: Any) -> None:
    """Raise unless a method says what tables call it, which is first needed after training."""
    if not isinstance(getattr(method, "label", None), str):
        name = type(method).__name__
        raise InputError(
            f"the method {name} has no label, what tables call it; give it a property label that "
            f"returns a str, or write label = {name!r} in the class"
        )


def checked_messages(node: Node, called: str, given: Any) -> Iterator[Message]:
    """Pass on the messages that a method of a node returned, if they are some.

    Args:
        node: of an agent.
        called: the method's name.
        given: what it returned.
    """
    what = f"agent {node.name!r}: {called}(...) of {type(node).__name__} must"
    try:
        messages = iter(given)
    except TypeError:
        raise InputError(
            f"{what} return messages, got {_kind(given)}; yield a sheafed.transport.Message for "
            "each neighbour, or return iter(()) if there is nothing to send"
        ) from None
    for message in messages:
        if not isinstance(message, Message):
            raise InputError(
                f"{what} yield messages, got {_kind(message)}; yield sheafed.transport.Message("
                "kind, round, sender, receiver, tensors)"
            )
        yield message


def checked_log(node: Node, round: int, log: Any) -> dict[str, float]:
    """Return what `receive` of a node returned to log, as numbers, if nothing is wrong with it."""
    where = f"agent {node.name!r}, round {round}: receive(...) of {type(node).__name__}"
    if not isinstance(log, Mapping):
        raise InputError(
            f"{where} must return numbers to log by name, got {_kind(log)}; return a dict, e.g. "
            "{'loss': float(loss.detach())}, or {} if there is nothing to log"
        )
    taken = [key for key in log if not isinstance(key, str) or _is_measured(key)]
    if taken:
        raise InputError(
            f"{where} returns {', '.join(map(repr, taken))} to log; keys are str other than "
            f"{', '.join(RESERVED)}, and do not begin with {', '.join(PREFIXES)}: these are "
            "measured; choose other names"
        )
    numbers = {key: _number(where, key, value) for key, value in log.items()}
    wrong = {key: value for key, value in numbers.items() if not math.isfinite(value)}
    if wrong:
        raise NonFiniteError(
            f"{where} returns numbers to log that are not finite: {wrong}; if training diverges, "
            "lower the learning rate or clip the gradient (max_grad_norm), and leave out a key "
            "that has no value in a round"
        )
    return numbers


def _is_measured(key: str) -> bool:
    return key in RESERVED or key.startswith(PREFIXES)


def _number(where: str, key: str, value: Any) -> float:
    if isinstance(value, float):
        return value
    try:
        if isinstance(value, str | bytes):
            raise TypeError  # float("1") is a number, and a text is none
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        size = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
        raise InputError(
            f"{where} returns {key!r} to log, which must be a number or a tensor of one, got "
            f"{_kind(value)}{size}; give float(...) of its mean"
        ) from None


def _kind(given: Any) -> str:
    return "None" if given is None else f"a {type(given).__name__}"
