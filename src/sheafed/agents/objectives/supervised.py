"""Cross-entropy on labels, and on class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.objective import Objective, ObjectiveOptions
from sheafed.agents.samples import Batch
from sheafed.errors import InputError
from sheafed.options import options

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def cross_entropy(agent: Agent, batch: Batch) -> Tensor:
    r"""Return $\mathcal L_i = \frac1n \sum_n \ell(h(f(x^n)), y^n)$ (eq. local-loss-supervised).

    >>> from sheafed.agents import Agent
    >>> data = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    >>> agent = Agent("ada", nn.Linear(2, 3), nn.Linear(3, 2), data=data)
    >>> cross_entropy(agent, Batch(*data)).shape
    torch.Size([])
    """
    head, targets = head_and_targets(agent, batch)
    return nn.functional.cross_entropy(head(agent.encode(batch.inputs)), targets)


@options
class CrossEntropyOptions(ObjectiveOptions):
    """Train encoder and head by cross-entropy on labels."""

    needs_labels = True
    name: Literal["cross-entropy"] = field(default="cross-entropy", kw_only=True, repr=False)

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        return cross_entropy


def soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    r"""Return $-\frac1n \sum_n \sum_c b^n_c \log \mathrm{softmax}(logits^n)_c$.

    >>> soft_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor(0.6931)
    """
    return -(probabilities * torch.log_softmax(logits, dim=-1)).sum(-1).mean()


def head_and_targets(agent: Agent, batch: Batch) -> tuple[nn.Module, Tensor]:
    """Return the agent's head and the batch's targets, or raise if either is missing."""
    if agent.head is None or batch.targets is None:
        missing = "head" if agent.head is None else "labels"
        raise InputError(
            f"agent {agent.name!r} has no {missing}, which cross-entropy needs; add it, or give "
            "another objective"
        )
    return agent.head, batch.targets
