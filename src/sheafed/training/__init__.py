"""Training: the round loop, the live network, its history and callbacks."""

from sheafed.training import multi_hop
from sheafed.training.callbacks import (
    Callback,
    EarlyStopping,
    ExperimentTracker,
    MetricsLog,
    MLflow,
    ProgressBar,
    TensorBoard,
    WandB,
)
from sheafed.training.cluster import Cluster
from sheafed.training.history import Record, RunHistory, Schedule
from sheafed.training.live_network import Network
from sheafed.training.loading import load_network
from sheafed.training.summary import summarise
from sheafed.training.train import train

__all__ = [
    "Callback",
    "Cluster",
    "EarlyStopping",
    "ExperimentTracker",
    "MLflow",
    "MetricsLog",
    "Network",
    "ProgressBar",
    "Record",
    "RunHistory",
    "Schedule",
    "TensorBoard",
    "WandB",
    "load_network",
    "multi_hop",
    "summarise",
    "train",
]
