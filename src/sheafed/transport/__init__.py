"""How messages get from agent to agent: the codec, the ledger, and the exchanges."""

from sheafed.transport.base import Mailbox, Transport
from sheafed.transport.codec import Encoded, decode, encode
from sheafed.transport.gloo import GlooTransport
from sheafed.transport.gloo_group import GlooGroup
from sheafed.transport.ledger import Ledger, LedgerState, Row, Traffic
from sheafed.transport.local import LocalTransport
from sheafed.transport.message import Message, TensorSpec, check_message
from sheafed.transport.wait_policy import Barrier, WaitPolicy

__all__ = [
    "Barrier",
    "Encoded",
    "GlooGroup",
    "GlooTransport",
    "Ledger",
    "LedgerState",
    "LocalTransport",
    "Mailbox",
    "Message",
    "Row",
    "TensorSpec",
    "Traffic",
    "Transport",
    "WaitPolicy",
    "check_message",
    "decode",
    "encode",
]
