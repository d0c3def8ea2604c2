"""The metrics log of a peer, which trains on while its disk is full."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.errors import OutputError
from sheafed.training.callbacks import MetricsLog
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

logger = logging.getLogger("sheafed.network")


class PeerMetricsLog(MetricsLog):
    """Writes what it could not write before together with the next record, or at the end.

    Until then the records are in memory, and in the checkpoint as soon as that can be written.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._behind = False

    def on_start(self, network: Network) -> None:
        self._try(lambda: super(PeerMetricsLog, self).on_start(network))

    def on_evaluation(self, network: Network, record: Record) -> bool:
        if self._behind:
            self.on_start(network)
        else:
            self._try(lambda: super(PeerMetricsLog, self).on_evaluation(network, record))
        return False

    def on_end(self, network: Network) -> None:
        if self._behind:
            super().on_start(network)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OutputError as problem:
            logger.error("the metrics cannot be written for now: %s", problem)
            self._behind = True
        else:
            self._behind = False
