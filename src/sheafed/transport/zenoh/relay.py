"""A relay for agents that can only dial out: it carries messages and understands none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.settings import open_session, relay_access, settings

if TYPE_CHECKING:
    import zenoh


def open_relay(
    names: Collection[str],
    *,
    credentials: Credentials,
    listen: Sequence[str],
    network: str = "default",
    limit: int = 1 << 26,
    lease: float = 5.0,
) -> zenoh.Session:
    """Carry the messages of these agents until the session that is returned is closed.

    TLS ends here: whoever runs the relay can read what passes, and could forge it. Agents must
    name it (`relays`) to be willing to hear others through it.
    """
    return open_session(
        settings(
            "router",
            listen=listen,
            connect=(),
            credentials=credentials,
            access=relay_access(network, names),
            limit=limit,
            lease=lease,
        )
    )
