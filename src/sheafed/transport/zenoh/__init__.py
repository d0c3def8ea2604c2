"""Peer-to-peer links over Zenoh with mutual TLS."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.transport.zenoh.credentials import Credentials, credentials_in
    from sheafed.transport.zenoh.relay import Relay
    from sheafed.transport.zenoh.transport import ZenohTransport
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = ["Credentials", "Relay", "ZenohTransport", "credentials_in"]
