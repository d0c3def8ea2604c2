"""Zenoh sessions without access control and limits of their own, as an attacker's."""

from typing import Any

import zenoh

from sheafed.transport.zenoh import Credentials
from sheafed.transport.zenoh.access_control import key
from sheafed.transport.zenoh.settings import Mode, open_session, session_settings
from sheafed.transport.zenoh.transport import MESSAGES
from tests.helpers.zenoh_peers import await_that


def intruder(
    endpoint: str, credentials: Credentials, batch: int = 65535, mode: Mode = "peer"
) -> zenoh.Session:
    """Connect to an agent or a relay.

    Args:
        endpoint: where it listens.
        credentials: of the attacker.
        batch: bytes of the largest piece in which a message goes over the link.
        mode: "client" to be served by a relay.
    """
    return open_session(intruder_settings(endpoint, credentials, batch, mode))


def intruder_settings(
    endpoint: str, credentials: Credentials, batch: int = 65535, mode: Mode = "peer"
) -> dict[str, Any]:
    settings = session_settings(
        mode,
        listen=[],
        connect=[endpoint],
        credentials=credentials,
        access={"enabled": False},
        limit=1 << 30,
        lease=5,
    )
    settings["transport"]["link"]["tx"]["batch_size"] = batch
    return settings


def await_subscriber(
    session: zenoh.Session, sender: str, receiver: str, seconds: float = 20
) -> None:
    """Wait until published bytes reach the receiver, whose subscription follows its link."""
    publisher = session.declare_publisher(key("default", sender, receiver, MESSAGES))
    await_that(lambda: publisher.matching_status.matching, seconds)
    publisher.undeclare()


def publish(session: zenoh.Session, sender: str, receiver: str, data: bytes, channel: str) -> None:
    """Publish bytes under any sender's name; block until the link has taken them."""
    session.put(
        key("default", sender, receiver, channel),
        data,
        congestion_control=zenoh.CongestionControl.BLOCK,
    )
