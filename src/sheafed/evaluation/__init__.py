"""Private, communication and oracle accuracy."""

from sheafed.evaluation.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
