"""A relay for agents that cannot be connected to: it forwards messages and decodes none."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sheafed.transport.zenoh.access_control import relay_access
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.guard import LINKS_PER_PEER, SPARE_LINKS, Guard
from sheafed.transport.zenoh.settings import open_session, session_settings


class Relay:
    """Forwards the messages of some agents until it is closed.

    TLS ends at the relay: its operator can read what passes, and could forge it. Agents accept
    messages through it only if they name it (`relays` of `ZenohTransport`).

    Args:
        names: of the agents.
        credentials: certificate, key and authority of the relay.
        listen: endpoints to listen on, e.g. `tls/0.0.0.0:7447`.
        network: agents of different networks do not exchange messages.
        limit: bytes of the largest message.
        lease: seconds of silence after which a link is closed.
        guard: whether a process of its own keeps strangers from the listeners.
    """

    def __init__(
        self,
        names: Collection[str],
        *,
        credentials: Credentials,
        listen: Sequence[str],
        network: str = "default",
        limit: int = 1 << 26,
        lease: float = 5.0,
        guard: bool = True,
    ) -> None:
        max_links = LINKS_PER_PEER * len(names) + SPARE_LINKS
        self._guard = Guard("relay", listen, max_links) if guard else None
        self._session = open_session(
            session_settings(
                "router",
                listen=listen if self._guard is None else self._guard.endpoints,
                connect=(),
                credentials=credentials,
                access=relay_access(network, names),
                limit=limit,
                lease=lease,
            ),
            self._guard,
        )

    def close(self) -> None:
        """Close all links; may be repeated."""
        self._session.close()  # type: ignore[no-untyped-call]
        if self._guard is not None:
            self._guard.close()
