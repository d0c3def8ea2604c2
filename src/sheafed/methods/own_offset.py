"""How often an agent's own data have each class, as an offset of a head's scores.

A head that learns pilots of all classes forgets which classes its agent has. That is a constant for
each class, which is fitted to own labels again when the head speaks for own data.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.optim import LBFGS

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import UNLABELLED, soft_cross_entropy
from sheafed.devices import double
from sheafed.methods.consensus import FEWEST
from sheafed.methods.reading_head import OffsetHead

OFFSET_DECAY = 1e-3
OWN_SAMPLES = 2048
"""How many of its training samples heads are fitted on, at most."""

Labelled = tuple[Tensor, Tensor]
"""Latents `(n, d)` and the class probabilities of each `(n, classes)`."""


def with_own_offset(agent: Agent, head: nn.Module, classes: int) -> OffsetHead:
    """Return a copy of a head that knows how often the agent's own data have each class.

    Args:
        agent: with labelled training data.
        head: from the agent's latents to scores `(n, classes)`.
        classes: how many.
    """
    copied = deepcopy(head).eval().requires_grad_(False)
    with torch.no_grad(), agent.inference():
        parts = [(agent.apply_head(z, copied), labels) for z, labels in own_latents(agent, classes)]
    if not parts:
        return OffsetHead(copied, torch.zeros(classes, device=agent.device))
    scores, labels = parts[0]
    return OffsetHead(copied, fit_offset(scores, labels).to(scores))


def fit_offset(scores: Tensor, labels: Tensor) -> Tensor:
    r"""Return the offset at which scores predict class probabilities best, `(classes,)` in float64.

    $$\arg\min_b \; -\frac1n \sum_n \sum_k y_{nk} \log \mathrm{softmax}(s_n + b)_k
      + \rho \lVert b \rVert^2$$

    It is convex; $\rho$ (`OFFSET_DECAY`) keeps a class that never occurs from $-\infty$.

    >>> blank = torch.zeros(4, 2)
    >>> rare = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> torch.softmax(fit_offset(blank, rare), dim=0)
    tensor([0.7489, 0.2511], dtype=torch.float64)

    Args:
        scores: $s$, `(n, classes)`.
        labels: $y$, `(n, classes)`.
    """
    scores, labels = double(scores.detach()), double(labels)
    offset = torch.zeros(scores.shape[-1], dtype=torch.float64, device=scores.device)
    offset.requires_grad_(True)
    optimizer = LBFGS([offset], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = soft_cross_entropy(scores + offset, labels) + OFFSET_DECAY * offset.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return offset.detach()


def own_latents(agent: Agent, classes: int) -> list[Labelled]:
    """Return latents of own labelled training samples and their class probabilities, if any.

    They are spread evenly over the data.
    """
    samples = agent.data.train
    count = min(len(samples), OWN_SAMPLES)
    latents, labels = agent.encode_once(samples, torch.arange(count) * len(samples) // count)
    if labels is None:
        return []
    if not labels.is_floating_point():
        known = labels != UNLABELLED
        latents = latents[known.to(latents.device)]
        labels = nn.functional.one_hot(labels[known].long(), classes).to(latents.dtype)
    return [(latents, labels.to(latents))] if len(latents) >= FEWEST else []
