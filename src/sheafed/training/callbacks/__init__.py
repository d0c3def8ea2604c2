"""What happens beside the training: progress, logs, early stopping."""

from sheafed.training.callbacks.callback import Callback, Started
from sheafed.training.callbacks.early_stopping import EarlyStopping
from sheafed.training.callbacks.metrics_log import MetricsLog, append_record
from sheafed.training.callbacks.progress_bar import ProgressBar
from sheafed.training.callbacks.tensorboard import TensorBoard

__all__ = [
    "Callback",
    "EarlyStopping",
    "MetricsLog",
    "ProgressBar",
    "Started",
    "TensorBoard",
    "append_record",
]
