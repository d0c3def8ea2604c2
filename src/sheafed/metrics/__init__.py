"""What agents are judged by: accuracy, R², errors, and metrics of your own."""

from sheafed.metrics.functional import accuracy, macro_f1, mae, mse, r2, top_k_accuracy
from sheafed.metrics.metric import METRICS, Metric, as_metric

__all__ = [
    "METRICS",
    "Metric",
    "accuracy",
    "as_metric",
    "macro_f1",
    "mae",
    "mse",
    "r2",
    "top_k_accuracy",
]
