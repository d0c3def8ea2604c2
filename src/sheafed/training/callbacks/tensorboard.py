"""Curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.errors import MissingDependencyError
from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class TensorBoard(Callback):
    """Curves for TensorBoard, which must be installed."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as problem:
            raise MissingDependencyError(
                "TensorBoard is not installed; get it with: pip install 'sheafed[tensorboard]'"
            ) from problem
        self._writer = SummaryWriter(str(directory))

    def on_evaluation(self, network: Network, record: Record) -> bool:
        for key, value in record.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(key, value, network.history.epoch)
        self._writer.flush()
        return False

    def on_end(self, network: Network) -> None:
        self._writer.close()
