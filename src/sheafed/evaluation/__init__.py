"""Private and communication accuracy, and that of the oracle encoder."""

from sheafed.evaluation.evaluate import evaluate, evaluate_locally, oracle_accuracies
from sheafed.evaluation.peer_evaluator import PeerEvaluator, Split
from sheafed.evaluation.result import Evaluation

__all__ = [
    "Evaluation",
    "PeerEvaluator",
    "Split",
    "evaluate",
    "evaluate_locally",
    "oracle_accuracies",
]
