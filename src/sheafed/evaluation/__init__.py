"""Private and communicated metrics, and those of the oracle encoder."""

from sheafed.evaluation.evaluate import evaluate, evaluate_locally, oracle_values
from sheafed.evaluation.peer_evaluator import PeerEvaluator, Split
from sheafed.evaluation.result import Evaluation

__all__ = [
    "Evaluation",
    "PeerEvaluator",
    "Split",
    "evaluate",
    "evaluate_locally",
    "oracle_values",
]
