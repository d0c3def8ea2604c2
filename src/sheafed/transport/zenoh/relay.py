"""A relay for agents that cannot be connected to: it forwards messages and decodes none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sheafed.transport.zenoh.access_control import relay_access
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.settings import open_session, session_settings

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
    """Forward the messages of these agents until the returned session is closed.

    TLS ends at the relay: its operator can read what passes, and could forge it. Agents accept
    messages through it only if they name it (`relays` of `ZenohTransport`).
    """
    return open_session(
        session_settings(
            "router",
            listen=listen,
            connect=(),
            credentials=credentials,
            access=relay_access(network, names),
            limit=limit,
            lease=lease,
        )
    )
