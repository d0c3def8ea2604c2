"""One process per agent: peers that may be slow or absent."""

from sheafed.network.deadline_policy import Timeouts
from sheafed.network.peer_agent import PeerAgent

__all__ = ["PeerAgent", "Timeouts"]
