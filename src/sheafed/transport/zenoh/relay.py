"""A relay for agents that cannot be connected to: it forwards messages and decodes none."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sheafed.errors import InputError, NetworkError
from sheafed.transport.zenoh.access_control import relay_access
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.guard import LINKS_PER_PEER, SPARE_LINKS, Guard
from sheafed.transport.zenoh.renewal import CredentialsWatch
from sheafed.transport.zenoh.settings import open_session, session_settings

if TYPE_CHECKING:
    import zenoh

logger = logging.getLogger("sheafed.transport")


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
        from sheafed.transport.zenoh.certificate_checks import check_files, common_names

        check_files(credentials)
        max_links = LINKS_PER_PEER * len(names) + SPARE_LINKS
        self._names, self._network, self._credentials = tuple(names), network, credentials
        self._watch = CredentialsWatch(
            credentials, ", ".join(common_names(credentials.certificate))
        )
        self._guard = Guard("relay", listen, max_links) if guard else None
        self._settings = partial(
            session_settings,
            "router",
            listen=listen if self._guard is None else self._guard.endpoints,
            connect=(),
            credentials=credentials,
            limit=limit,
            lease=lease,
        )
        self._session: zenoh.Session | None = None
        self._open(self._guard)

    def renew_if_due(self) -> None:
        """Open all links anew if the files of the credentials were replaced; call it regularly."""
        if not self._watch.replaced():
            return
        self._watch.not_in_use()
        self._close_session()
        try:
            self._open()
        except (NetworkError, InputError) as problem:
            logger.error("the relay is without links for now: %s", problem)
        else:
            self._watch.taken_up()
            logger.info("the relay opened its links anew; certificate %s", self._watch.describe())

    def _open(self, guard: Guard | None = None) -> None:
        revoked = self._credentials.revoked_names()
        access = relay_access(self._network, [n for n in self._names if n not in revoked])
        self._session = open_session(self._settings(access=access), guard)

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close all links; may be repeated."""
        self._close_session()
        if self._guard is not None:
            self._guard.close()
