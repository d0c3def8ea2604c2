"""The round loop, evaluation, checkpoints and callbacks."""

from sheafed.runtime.callbacks import (
    Callback,
    EarlyStopping,
    MetricsLog,
    ProgressBar,
    TensorBoard,
)
from sheafed.runtime.cluster import Cluster
from sheafed.runtime.evaluation import Evaluation, evaluate
from sheafed.runtime.run import Run
from sheafed.runtime.train import train

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
