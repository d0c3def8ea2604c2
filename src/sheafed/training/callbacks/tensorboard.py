"""Curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.errors import MissingDependencyError
from sheafed.training.callbacks.callback import Callback
from sheafed.training.callbacks.experiment_tracker import scalars
from sheafed.training.history import Record

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class TensorBoard(Callback):
    """Curves for TensorBoard, which must be installed.

    Args:
        directory: of the event files. Points that it holds from the first evaluation of this
            training on, as after an interruption, are hidden and measured again.
    """

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as problem:
            raise MissingDependencyError(
                "TensorBoard is not installed; get it with: pip install 'sheafed[tensorboard]'"
            ) from problem
        self._open = SummaryWriter
        self._directory = str(directory)

    def on_start(self, network: Network) -> None:
        recorded = (network.history.last or {}).get("epoch", 0)
        self._writer = self._open(self._directory, purge_step=recorded + 1)

    def on_evaluation(self, network: Network, record: Record) -> bool:
        for key, value in scalars(record).items():
            self._writer.add_scalar(key, value, record["epoch"])
        self._writer.flush()
        return False

    def on_end(self, network: Network) -> None:
        self._writer.close()
