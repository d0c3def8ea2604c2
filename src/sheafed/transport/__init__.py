"""How messages get from agent to agent: the codec, the ledger, and the exchanges."""

from sheafed.transport.base import Mailbox, Transport
from sheafed.transport.codec import Encoded, decode, encode
from sheafed.transport.gloo import GlooTransport
from sheafed.transport.gloo_group import GlooGroup
from sheafed.transport.ledger import Ledger, LedgerState, Row, Traffic
from sheafed.transport.local import LocalTransport

__all__ = [
    "GlooTransport",
    "Encoded",
    "Transport",
    "Ledger",
    "LedgerState",
    "LocalTransport",
    "Mailbox",
    "GlooGroup",
    "Row",
    "Traffic",
    "decode",
    "encode",
]
