"""The mean squared error of a head that predicts numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from sheafed.agents.objectives.supervised import head_and_targets
from sheafed.agents.samples import Batch
from sheafed.errors import ShapeError
from sheafed.metrics.functional import matched

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def mean_squared_error(agent: Agent, batch: Batch) -> Tensor:
    r"""Return the mean of $(h(f(x^n)) - y^n)^2$ over all values of targets `(n,)` or `(n, k)`.

    A head with outputs `(n, 1)` may have targets `(n,)`, and the reverse. Targets of another type,
    e.g. integers or float64, are compared in the precision of the outputs. Scale them to a variance
    of about 1: learning rates and the weights of other losses are made for that.

    >>> import torch
    >>> from sheafed.agents import Agent
    >>> data = torch.randn(4, 2), torch.tensor([0.5, -1.0, 2.0, 0.0])
    >>> agent = Agent("ada", nn.Linear(2, 3), nn.Linear(3, 1), data=data, metric="r2")
    >>> mean_squared_error(agent, Batch(*data)).shape
    torch.Size([])
    """
    head, targets = head_and_targets(agent, batch, "the mean squared error")
    outputs = matched_to(agent, targets, head(agent.encode(batch.inputs)))
    return nn.functional.mse_loss(outputs, targets.to(outputs.dtype))


def matched_to(agent: Agent, targets: Tensor, outputs: Tensor) -> Tensor:
    """Return the outputs of an agent's head in the shape of its targets, or raise."""
    try:
        return matched(outputs, targets)
    except ShapeError as problem:
        raise ShapeError(f"agent {agent.name!r}: {problem}") from problem
