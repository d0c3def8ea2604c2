"""One process per agent: peers that may be slow or absent."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.network.deadline_policy import Timeouts
    from sheafed.network.peer_agent import PeerAgent
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = ["PeerAgent", "Timeouts"]
