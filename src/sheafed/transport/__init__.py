"""How messages get from agent to agent: codec, ledger, and one transport per environment.

`LocalTransport` works inside one process, `GlooTransport` between the processes of a cluster,
`ZenohTransport` between machines without a server.
"""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.transport.base import Transport
    from sheafed.transport.codec import Encoded, decode, encode
    from sheafed.transport.gloo import GlooTransport
    from sheafed.transport.gloo_group import GlooGroup
    from sheafed.transport.ledger import Ledger, LedgerState, Row, Traffic
    from sheafed.transport.local import LocalTransport
    from sheafed.transport.mailbox import Mailbox
    from sheafed.transport.message import Message, TensorSpec, check_message
    from sheafed.transport.wait_policy import Barrier, WaitPolicy
    from sheafed.transport.zenoh import Credentials, ZenohTransport
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Barrier",
    "Credentials",
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
    "ZenohTransport",
    "check_message",
    "decode",
    "encode",
]
