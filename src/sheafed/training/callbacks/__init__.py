"""What happens beside the training: progress, logs, early stopping."""

from sheafed.training.callbacks.callback import Callback, Started
from sheafed.training.callbacks.early_stopping import EarlyStopping
from sheafed.training.callbacks.experiment_tracker import ExperimentTracker
from sheafed.training.callbacks.metrics_log import MetricsLog, append_record
from sheafed.training.callbacks.mlflow import MLflow
from sheafed.training.callbacks.progress_bar import ProgressBar, is_watched
from sheafed.training.callbacks.tensorboard import TensorBoard
from sheafed.training.callbacks.wandb import WandB

__all__ = [
    "Callback",
    "EarlyStopping",
    "ExperimentTracker",
    "MLflow",
    "MetricsLog",
    "ProgressBar",
    "Started",
    "TensorBoard",
    "WandB",
    "append_record",
    "is_watched",
]
