"""One exchange as one agent sees it."""

from __future__ import annotations

from typing import NamedTuple

from sheafed.methods.sheaf_frl.round_messages import is_comparable
from sheafed.methods.sheaf_frl.sent_pilots import SentPilots
from sheafed.transport.message import Message


class Exchange(NamedTuple):
    """What an agent sent in a round, and what it can read of what arrived."""

    sent: SentPilots
    messages: dict[str, Message]

    @property
    def comparable(self) -> dict[str, Message]:
        """The messages about the pilots that the agent has encoded."""
        return {j: message for j, message in self.messages.items() if is_comparable(message)}
