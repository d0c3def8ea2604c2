"""Peer-to-peer links over Zenoh with mutual TLS."""

from sheafed.transport.zenoh.credentials import Credentials, credentials_in
from sheafed.transport.zenoh.relay import Relay
from sheafed.transport.zenoh.transport import ZenohTransport

__all__ = ["Credentials", "Relay", "ZenohTransport", "credentials_in"]
