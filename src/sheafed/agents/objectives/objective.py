"""The type of objectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from sheafed.agents.samples import Batch

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

Objective = Callable[["Agent", Batch], Tensor]
"""From an agent and a batch of its training data to a scalar loss. It runs within the agent's
`rng_context`; the parameters of a module are trained with the agent's."""
