"""How messages get from agent to agent: the codec, the ledger, and the exchanges."""

from sheafed.exchange.base import Exchange, Mailbox
from sheafed.exchange.codec import Encoded, decode, encode
from sheafed.exchange.distributed import DistributedExchange
from sheafed.exchange.ledger import Ledger, LedgerState, Row, Traffic
from sheafed.exchange.local import LocalExchange
from sheafed.exchange.ranks import Ranks

__all__ = [
    "DistributedExchange",
    "Encoded",
    "Exchange",
    "Ledger",
    "LedgerState",
    "LocalExchange",
    "Mailbox",
    "Ranks",
    "Row",
    "Traffic",
    "decode",
    "encode",
]
