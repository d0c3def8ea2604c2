"""The round loop, evaluation, checkpoints and callbacks."""

from sheafed.evaluation.evaluation import Evaluation, evaluate
from sheafed.training.callbacks import (
    Callback,
    EarlyStopping,
    MetricsLog,
    ProgressBar,
    TensorBoard,
)
from sheafed.training.cluster import Cluster
from sheafed.training.run import Run
from sheafed.training.train import train

__all__ = [
    "Callback",
    "Cluster",
    "EarlyStopping",
    "Evaluation",
    "MetricsLog",
    "ProgressBar",
    "Run",
    "TensorBoard",
    "evaluate",
    "train",
]
