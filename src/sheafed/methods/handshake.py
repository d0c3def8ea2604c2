"""What two agents say to each other when they meet, and when one refuses the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from sheafed.errors import HandshakeError
from sheafed.transport.message import Message

LARGEST_COUNT = 2**40
BOUNDS = {"dimension": (1, 2**16)}
"""Of what a neighbour says of itself, where they are not 0 and `LARGEST_COUNT`. A map of its
dimension is made before its first latent comes."""


def check_agreement(
    me: str,
    shared_settings: Mapping[str, str | int],
    where_known: Mapping[str, str],
    hello_message: Message,
) -> None:
    """Raise unless a neighbour has agreed to the same as this agent.

    Args:
        me: this agent.
        agreement: what both must say.
        where_known: what both must say alike if both say it.
        greeting: what the neighbour says.
    """
    for what, mine in {**shared_settings, **where_known}.items():
        theirs = hello_message.fields.get(what)
        if theirs != mine and not (theirs is None and what in where_known):
            raise HandshakeError(
                f"agents {me!r} and {hello_message.sender!r} do not agree on the {what}: "
                f"{mine!r} against {theirs!r}; give both the same configuration"
            )


def label_set(classes: Sequence[str] | None) -> dict[str, str]:
    """Return what tells one label set, the classes in their order, from others, if it is known."""
    if classes is None:
        return {}
    content = blake2b(digest_size=16)
    for name in classes:
        content.update(f"{len(name)}:{name}".encode())
    return {"label set": content.hexdigest()}


def read_introduction(expected: Iterable[str], hello_message: Message) -> dict[str, int]:
    """Return what a neighbour says of itself."""
    said = {}
    for what in expected:
        value = hello_message.fields.get(what)
        low, high = BOUNDS.get(what, (0, LARGEST_COUNT))
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise HandshakeError(
                f"agent {hello_message.sender!r} says its {what} is {value!r}, expected an integer "
                f"from {low} to {high}"
            )
        said[what] = value
    return said
