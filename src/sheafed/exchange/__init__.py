"""How messages get from agent to agent: the codec, the ledger, and the exchanges."""

from sheafed.exchange.base import Exchange, Mailbox
from sheafed.exchange.codec import Encoded, decode, encode
from sheafed.exchange.ledger import Ledger, LedgerState, Row, Traffic
from sheafed.exchange.local import LocalExchange

__all__ = [
    "Encoded",
    "Exchange",
    "Ledger",
    "LedgerState",
    "LocalExchange",
    "Mailbox",
    "Row",
    "Traffic",
    "decode",
    "encode",
]
