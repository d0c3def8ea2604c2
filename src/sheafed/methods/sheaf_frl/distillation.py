"""Federated distillation: heads learn from the predictions of neighbours' heads.

Agents with different models teach each other by their predictions on shared unlabelled data, as in
FedMD (Li and Wang 2019, arXiv:1910.03581) and FedDF (Lin et al. 2020, arXiv:2006.07242). Here:

- there is no server and no ensemble: an agent learns from each neighbour's predictions as they are,
  and only where that neighbour is confident;
- a student sees the teacher's transported latents instead of encoding the pilots itself, so the
  head learns to read what neighbours will send;
- only the head is trained: the latents are constants, and what pulls encoders together is the
  gluing penalty.

Heads of regression learn the numbers that neighbours predict. Those tell no confidence, so all are
learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from torch import Tensor, nn

from sheafed.agents.objectives import soft_cross_entropy
from sheafed.errors import HandshakeError
from sheafed.methods.latent_codec import OUTPUTS
from sheafed.methods.predictions import Head
from sheafed.metrics.functional import in_shape_of
from sheafed.options import Fraction, Positive, options


@options
class Distillation:
    """Senders add their head's class probabilities of the pilots; receivers' heads learn them.

    Beyond the paper. The receiver's head is trained on transported latents where the sender is
    confident. Pilots stay unlabelled; both agents must mean the same classes. Where heads predict
    numbers, these are sent and learnt, all of them; both agents must mean the same quantities.

    Args:
        confidence: the probability that a sender's class must exceed to be learnt from.
        weight: of the soft cross-entropy, or of the squared error, beside the objective.
    """

    kind: Literal["heads"] = field(default="heads", kw_only=True, repr=False)
    confidence: Fraction = 0.8
    weight: Positive = 1.0

    def loss(self, head: Head, latents: Tensor, probabilities: Tensor) -> Tensor | None:
        """Return the soft cross-entropy of the head on the latents `(n, d)` of confident senders.

        None if fewer than two are confident: batch norm in a head needs two rows.
        """
        confident = probabilities.amax(-1) > self.confidence
        if int(confident.sum()) < 2:
            return None
        return self.weight * soft_cross_entropy(head(latents[confident]), probabilities[confident])

    def regression_loss(self, head: Head, latents: Tensor, outputs: Tensor) -> Tensor | None:
        """Return the mean squared error of the head on latents `(n, d)` to what senders predict.

        None for a single row, as in `loss`.
        """
        if len(latents) < 2:
            return None
        predicted = head(latents)
        return self.weight * nn.functional.mse_loss(predicted, in_shape_of(predicted, outputs))


def check_same_outputs(
    name: str, own: Mapping[str, int], neighbour: str, other: Mapping[str, int]
) -> None:
    """Raise if the heads of two neighbours that teach each other do not predict the same numbers.

    Args:
        name: of the agent.
        own: the sizes that it announces.
        neighbour: the name of the other.
        other: the sizes that this one announces.
    """
    mine, theirs = own.get(OUTPUTS, 0), other.get(OUTPUTS, 0)
    problem = None
    if mine and theirs and mine != theirs:
        problem = f"their heads predict {mine} and {theirs} numbers"
    elif (mine and other["classes"]) or (theirs and own["classes"]):
        problem = "the head of one predicts numbers and that of the other tells classes apart"
    if problem is not None:
        raise HandshakeError(
            f"agents {name!r} and {neighbour!r} cannot learn from each other: {problem}; leave out "
            "the distillation, or give both the same targets"
        )
