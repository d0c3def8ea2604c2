r"""What neighbours agree on: the class probabilities of shared samples, combined by confidence.

Agents with different models label shared unlabelled samples for each other, as in FedMD (Li and
Wang 2019, arXiv:1910.03581) and FedDF (Lin et al. 2020, arXiv:2006.07242). A mean of all
predictions is poor where agents know different classes, as one that has never seen a class is
wrong about it. Hence predictions count by their confidence, and that is calibrated by temperature
(Guo et al. 2017, arXiv:1706.04599), so that it means the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TEMPERATURES = (0.25, 8.0)
"""The smallest and the largest: a few labels that a head has right, or wrong, all of them, would
else call for 0, or for no end."""
BISECTIONS = 30


def consensus(predictions: Sequence[Tensor], sharpness: float) -> Tensor:
    r"""Return the mean of class probabilities `(n, classes)`, weighted by their confidence.

    $\bar p = \sum_j c_j^s p_j \big/ \sum_j c_j^s$ for every sample, where the confidence $c_j$ is
    the largest probability of $p_j$.

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
    weights = (confidence / confidence.amax(0)) ** sharpness
    return (stacked * weights).sum(0) / weights.sum(0)


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
