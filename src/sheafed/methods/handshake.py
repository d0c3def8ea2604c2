"""What two agents say to each other when they meet, and when one refuses the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sheafed.domain.messages import Message
from sheafed.errors import HandshakeError

LARGEST_COUNT = 2**40
BOUNDS = {"dimension": (1, 2**16)}
"""Of what a neighbour says of itself, where they are not 0 and `LARGEST_COUNT`. A map of its
dimension is made before its first latent comes."""


def check_agreement(me: str, agreement: Mapping[str, str | int], greeting: Message) -> None:
    """Raise unless a neighbour has agreed to the same as this agent."""
    for what, mine in agreement.items():
        theirs = greeting.fields.get(what)
        if theirs != mine:
            raise HandshakeError(
                f"agents {me!r} and {greeting.sender!r} do not agree on the {what}: "
                f"{mine!r} against {theirs!r}; give both the same configuration"
            )


def read_introduction(expected: Iterable[str], greeting: Message) -> dict[str, int]:
    """Return what a neighbour says of itself."""
    said = {}
    for what in expected:
        value = greeting.fields.get(what)
        low, high = BOUNDS.get(what, (0, LARGEST_COUNT))
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise HandshakeError(
                f"agent {greeting.sender!r} says its {what} is {value!r}, expected an integer "
                f"from {low} to {high}"
            )
        said[what] = value
    return said
