"""The settings of a Zenoh session: explicit endpoints, mutual TLS, bounded memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from sheafed.errors import MissingDependencyError, NetworkError
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.guard import Guard

if TYPE_CHECKING:
    import zenoh

Mode = Literal["peer", "client", "router"]

LOG_LEVEL = "zenoh_link_tls=warn"
"""What Zenoh logs unless RUST_LOG is set: links refused for lack of a trusted certificate."""
OVERHEAD = 1 << 16
"""Bytes that Zenoh may add to a message: its own header and the key."""


def import_zenoh() -> ModuleType:
    try:
        import zenoh
    except ImportError as problem:
        raise MissingDependencyError(
            "a network of agents needs Zenoh; install it with: pip install 'sheafed[network]'"
        ) from problem
    return zenoh


def log_zenoh() -> None:
    """Let Zenoh write its warnings, without escapes for colours in a file."""
    if not sys.stdout.isatty():
        os.environ.setdefault("NO_COLOR", "1")
    import_zenoh().init_log_from_env_or(LOG_LEVEL)


def open_session(settings: Mapping[str, Any], guard: Guard | None = None) -> zenoh.Session:
    """Open a session and, once it listens, the guard in front of it."""
    module = import_zenoh()
    try:
        session: zenoh.Session = module.open(module.Config.from_json5(json.dumps(settings)))
    except module.ZError as problem:
        listen = settings["listen"]["endpoints"]
        raise NetworkError(
            f"cannot join the network, listening on {listen or 'nothing'}: {problem}; check the "
            "addresses and the certificate files"
        ) from problem
    try:
        if guard is not None:
            guard.start()
    except NetworkError:
        session.close()  # type: ignore[no-untyped-call]
        raise
    return session


def session_settings(
    mode: Mode,
    *,
    listen: Sequence[str],
    connect: Sequence[str],
    credentials: Credentials,
    access: Mapping[str, Any],
    limit: int,
    lease: float,
) -> dict[str, Any]:
    """Return the configuration of a session.

    Args:
        mode: "peer" for an agent, "client" for one behind a relay, "router" for a relay.
        listen: endpoints such as `tls/0.0.0.0:7447`.
        connect: endpoints to connect to, with retries until they answer.
        credentials: for mutual TLS.
        access: a value of `agent_access` or `relay_access`.
        limit: bytes of the largest message; fragments of larger ones are not even assembled.
        lease: seconds of silence after which a link counts as broken.
    """
    return {
        "mode": mode,
        "listen": {"endpoints": list(listen)},
        "connect": {
            "endpoints": list(connect),
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": 200,
                "period_max_ms": 1000,
                "period_increase_factor": 2,
            },
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "unicast": {"open_timeout": int(lease * 1000), "accept_timeout": int(lease * 1000)},
            "link": {
                "protocols": ["tls"],
                "tx": {
                    "lease": int(lease * 1000),
                    "queue": {
                        # Microseconds. Only sending threads wait, never training; but a long wait
                        # for a frozen neighbour also delays Zenoh's links to the others.
                        "congestion_control": {
                            "drop": {
                                "wait_before_drop": 50_000,
                                "max_wait_before_drop_fragments": 1_000_000,
                            }
                        }
                    },
                },
                "rx": {"max_message_size": limit + OVERHEAD},
                "tls": tls_settings(credentials),
            },
            "shared_memory": {"enabled": False},  # it would bypass TLS
        },
        "access_control": access,
    }


def tls_settings(credentials: Credentials) -> dict[str, Any]:
    """Return mutual TLS: both ends of a link prove their names, whichever of them connects."""
    return {
        "root_ca_certificate": str(credentials.authority),
        "listen_certificate": str(credentials.certificate),
        "listen_private_key": str(credentials.key),
        "connect_certificate": str(credentials.certificate),
        "connect_private_key": str(credentials.key),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
    }
