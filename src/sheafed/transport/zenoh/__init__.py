"""Peer-to-peer links over Zenoh with mutual TLS."""

from sheafed.transport.zenoh.credentials import Credentials, credentials_in
from sheafed.transport.zenoh.relay import open_relay
from sheafed.transport.zenoh.transport import ZenohTransport

__all__ = ["Credentials", "ZenohTransport", "credentials_in", "open_relay"]
