r"""What neighbours agree on: the class probabilities of shared samples, combined by confidence.

Agents with different models label shared unlabelled samples for each other, as in FedMD (Li and
Wang 2019, arXiv:1910.03581) and FedDF (Lin et al. 2020, arXiv:2006.07242). A mean of all
predictions is poor where agents know different classes, as one that has never seen a class is
wrong about it. Hence predictions count by their confidence, and that is calibrated by temperature
(Guo et al. 2017, arXiv:1706.04599), so that it means the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import UNLABELLED, soft_cross_entropy
from sheafed.agents.objectives.supervised import check_labels
from sheafed.agents.samples import TensorSamples
from sheafed.methods.node import count_outputs
from sheafed.options import Fraction, NotNegative, Positive, Switch, options
from sheafed.seeds import generator

TEMPERATURES = (0.25, 8.0)
"""The smallest and the largest: a few labels that a head has right, or wrong, all of them, would
else call for 0, or for no end."""
BISECTIONS = 30
CALIBRATION_SAMPLES = 1000
"""How many of its validation samples an agent calibrates its confidence on, at most."""
FEWEST = 2
"""Pilots of a step: batch norm needs two."""


@options
class Consensus:
    """Models learn the classes of pilots that neighbours agree on.

    Args:
        confidence: the probability that the consensus of a pilot must exceed to be learnt.
        weight: of the soft cross-entropy beside the objective.
        sharpness: by how much confident predictions outweigh others, see
            `sheafed.methods.consensus.consensus`.
        calibrate: divide the head's scores by the temperature at which they predict the agent's
            validation data best. Without such data they are taken as they are.
    """

    kind: Literal["consensus"] = field(default="consensus", kw_only=True, repr=False)
    confidence: Fraction = 0.5
    weight: Positive = 1.0
    sharpness: NotNegative = 4.0
    calibrate: Switch = True

    def learnt_pilots(self, targets: Tensor, most: int, seed: int, *moment: str | int) -> Tensor:
        """Return indices of pilots that are agreed on, at most so many, drawn for a moment.

        None are learnt if there are fewer than `FEWEST`.

        Args:
            targets: the consensus `(n, classes)`.
            most: how many.
            seed: of the network.
            moment: what the draw is for, e.g. the agent and the round.
        """
        rows = (targets.amax(-1) > self.confidence).nonzero()[:, 0].cpu()
        if len(rows) < FEWEST:
            return rows[:0]
        stream = generator(seed, *moment, "consensus")
        return rows[torch.randperm(len(rows), generator=stream)[:most]]

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the weighted soft cross-entropy of scores against the consensus `(n, classes)`."""
        return self.weight * soft_cross_entropy(scores, targets)


def consensus(predictions: Sequence[Tensor], sharpness: float) -> Tensor:
    r"""Return the mean of class probabilities `(n, classes)`, weighted by their confidence.

    $\bar p = \sum_j c_j^s p_j \big/ \sum_j c_j^s$ for every sample, where the confidence $c_j$ is
    the largest probability of $p_j$. Rows of zeros, of samples that an agent has not predicted,
    do not count; where there is no other they stay.

    >>> sure, unsure = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]])
    >>> consensus([sure, unsure], sharpness=0)
    tensor([[0.6500, 0.3500]])
    >>> consensus([sure, unsure], sharpness=4)
    tensor([[0.8175, 0.1825]])

    Args:
        predictions: of several agents, of the same samples.
        sharpness: s; 0 is the plain mean, and the larger, the more the most confident decides.
    """
    stacked = torch.stack(list(predictions))
    confidence = stacked.amax(-1, keepdim=True)
    # Relative to the most confident, whose weight is 1: none is 0 / 0, whatever the sharpness.
    most = confidence.amax(0).clamp_min(torch.finfo(stacked.dtype).tiny)
    weights = (confidence / most) ** sharpness * (confidence > 0)
    return (stacked * weights).sum(0) / weights.sum(0).clamp_min(1)


def agree(own: Tensor | None, others: Sequence[Tensor], sharpness: float) -> Tensor | None:
    """Return the consensus of what neighbours predict and the own prediction, if there is one.

    None without any prediction of a neighbour. Those that were rounded in a message are made to
    sum to 1 again; rows of zeros, of samples that an agent has not predicted, stay.
    """
    if not others:
        return None
    given = [p.float() for p in (*([] if own is None else [own]), *others)]
    return consensus([nn.functional.normalize(p, p=1.0, dim=-1) for p in given], sharpness)


def fit_temperature(scores: Tensor, labels: Tensor) -> float:
    r"""Return the temperature T, within `TEMPERATURES`, at which scores predict labels best.

    The mean of $-\log \mathrm{softmax}(s / T)_y$ is convex in $1 / T$; its slope there, the
    expected score less that of the label, grows with $1 / T$, so the root is found by bisection.

    >>> overconfident = torch.tensor([[5.0, 0.0], [5.0, 0.0], [5.0, 0.0], [5.0, 0.0]])
    >>> temperature = fit_temperature(overconfident, torch.tensor([0, 0, 0, 1]))
    >>> torch.softmax(overconfident[0] / temperature, dim=-1)
    tensor([0.7500, 0.2500])

    Args:
        scores: `(n, classes)`, on the CPU.
        labels: classes `(n,)`, or their probabilities `(n, classes)`.
    """
    scores = scores.double()
    if labels.is_floating_point():
        right = (labels * scores).sum(-1).mean()
    else:
        right = scores.gather(1, labels[:, None]).mean()
    low, high = (1 / temperature for temperature in reversed(TEMPERATURES))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        expected = (torch.softmax(scores * middle, dim=-1) * scores).sum(-1).mean()
        if expected < right:
            low = middle
        else:
            high = middle
    return 2 / (low + high)


@torch.no_grad()
def calibrated_probabilities(
    agent: Agent, latents: Tensor, *, calibrate: bool = True, head: nn.Module | None = None
) -> Tensor:
    """Return the class probabilities `(n, classes)` that an agent's head gives latents.

    Args:
        agent: with a head of classes.
        latents: `(n, d)`.
        calibrate: by temperature, on the agent's validation data.
        head: another one, in evaluation mode, in place of the agent's.
    """
    with agent.inference():
        scores = agent.apply_head(latents, head)
        return torch.softmax(scores / (_temperature(agent, head) if calibrate else 1.0), dim=-1)


def _temperature(agent: Agent, head: nn.Module | None) -> float:
    found = validation_scores(agent, head)
    return 1.0 if found is None else fit_temperature(*found)


@torch.no_grad()
def validation_scores(agent: Agent, head: nn.Module | None) -> tuple[Tensor, Tensor] | None:
    """Return the scores of some validation samples and their labels, if the agent has any.

    Args:
        agent: with a head of classes.
        head: another one, in evaluation mode, in place of the agent's.
    """
    samples = agent.data.validation
    if samples is None:
        return None
    count = min(len(samples), CALIBRATION_SAMPLES)
    rows = torch.arange(count) * len(samples) // count  # spread evenly: they may be sorted
    with agent.inference():
        latents, labels = agent.encode_once(samples, rows)
        if labels is None:
            return None
        scores = agent.apply_head(latents, head).cpu()
    if not labels.is_floating_point():
        check_labels(agent.name, labels := labels.long(), scores)
    return scores, labels


def count_classes(agent: Agent) -> int:
    """Return how many classes an agent's head tells apart, 0 if it tells none apart."""
    outputs = 0 if agent.regression else count_outputs(agent)
    return outputs if outputs > 1 else 0  # a single score is no probability


def is_labelled(agent: Agent) -> bool:
    """Whether an agent's training data have targets; a class for any sample, if in memory."""
    train = agent.data.train
    targets = train.batch(torch.arange(1)).targets
    if targets is None or targets.is_floating_point() or not isinstance(train, TensorSamples):
        return targets is not None
    return train.targets is not None and bool((train.targets != UNLABELLED).any())
