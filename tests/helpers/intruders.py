"""Sessions that obey no access control and no limit of their own, as an attacker's do not."""

import zenoh

from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.settings import Mode, key, open_session, settings
from sheafed.transport.zenoh.transport import MESSAGES
from tests.helpers.zenoh_peers import await_that


def intruder(
    endpoint: str, credentials: Credentials, batch: int = 65535, mode: Mode = "peer"
) -> zenoh.Session:
    """Dial an agent or a relay.

    Args:
        endpoint: where it listens.
        credentials: what is shown to it.
        batch: the bytes of the largest piece in which a message goes over the link.
        mode: "client" for one that is to be carried by a relay.
    """
    chosen = settings(
        mode,
        listen=[],
        connect=[endpoint],
        credentials=credentials,
        access={"enabled": False},
        limit=1 << 30,
        lease=5,
    )
    chosen["transport"]["link"]["tx"]["batch_size"] = batch
    return open_session(chosen)


def await_ears(session: zenoh.Session, sender: str, receiver: str, seconds: float = 20) -> None:
    """Wait until what is put reaches its receiver, whose subscription follows its link."""
    publisher = session.declare_publisher(key("default", sender, receiver, MESSAGES))
    await_that(lambda: publisher.matching_status.matching, seconds)
    publisher.undeclare()


def put(session: zenoh.Session, sender: str, receiver: str, data: bytes, channel: str) -> None:
    """Say something under any name, and wait until the link has taken it."""
    session.put(
        key("default", sender, receiver, channel),
        data,
        congestion_control=zenoh.CongestionControl.BLOCK,
    )
