"""One live process per name: which process neighbours accept, seen from both sides.

A certificate can be copied, so two processes may come under one name. The first one that greets an
agent holds the name there as long as it is live; every hello says which process of the receiver's
name its sender accepts. A process that is not the one ends, unless the other one disappears within
the time after which a dead process is noticed.
"""

from __future__ import annotations

import time
from collections import deque

from sheafed.errors import DuplicateAgentError, HandshakeError
from sheafed.transport.message import Message
from sheafed.transport.zenoh.transport import ZenohTransport

INSTANCE, HOLDER, TAKES_OVER = "instance", "holder", "takes over"
"""Fields of a hello: the sender's process, the process that it accepts under the receiver's name,
and whether the sender replaces another process of its own name."""
MARGIN_SECONDS = 2.0
MAX_REPLACED = 8


class Identities:
    """Which process holds the name of each neighbour, and whether neighbours accept this one.

    Args:
        transport: knows the live processes.
        take_over: whether this process replaces another live one of its name.
    """

    def __init__(self, transport: ZenohTransport, take_over: bool = False) -> None:
        self._transport, self._take_over = transport, take_over
        self._holders: dict[str, str] = {}
        self._replaced: dict[str, deque[str]] = {}
        self._refused_since: dict[str, float] = {}

    def fields(self, neighbour: str) -> dict[str, str | bool | None]:
        """Return what a hello to a neighbour says of processes."""
        return {
            INSTANCE: self._transport.instance,
            HOLDER: self._holder(neighbour),
            TAKES_OVER: self._take_over,
        }

    def accepts(self, neighbour: str, hello: Message) -> bool:
        """Return whether a hello is of the process that holds the name, which it may become."""
        instance = hello.fields.get(INSTANCE)
        if not isinstance(instance, str):
            raise HandshakeError(
                f"agent {neighbour!r} does not say which process it is; install the same release "
                "at both ends"
            )
        holder = self._holder(neighbour)
        if holder == instance:
            return True
        replaced = self._replaced.setdefault(neighbour, deque(maxlen=MAX_REPLACED))
        if holder is not None:
            if hello.fields.get(TAKES_OVER) is not True or instance in replaced:
                return False
            replaced.append(holder)
        self._holders[neighbour] = instance
        return True

    def is_accepted(self, neighbour: str, hello: Message, before: bool) -> bool:
        """Return whether a neighbour accepts this process.

        Args:
            neighbour: the sender of the hello.
            hello: its latest one.
            before: whether the neighbour has accepted this process before.
        """
        if hello.fields.get(HOLDER) in (None, self._transport.instance):
            self._refused_since.pop(neighbour, None)
            return True
        since = self._refused_since.setdefault(neighbour, time.monotonic())
        name = self._transport.name
        if before:
            raise DuplicateAgentError(
                f"another process has taken over the name {name!r}, says its neighbour "
                f"{neighbour!r}; this one ends"
            )
        if time.monotonic() - since > self._transport.lease + MARGIN_SECONDS:
            raise DuplicateAgentError(
                f"another process named {name!r} is in the network, says its neighbour "
                f"{neighbour!r}; stop it, or replace it by --take-over (in Python take_over=True)"
            )
        return False

    def _holder(self, neighbour: str) -> str | None:
        """Return the process that holds the name of a neighbour, if it is live."""
        holder = self._holders.get(neighbour)
        return holder if holder in self._transport.instances(neighbour) else None
