"""What an objective is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from sheafed.agents.samples import Batch

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

Objective = Callable[["Agent", Batch], Tensor]
"""Of an agent and a batch of its training data, a scalar loss. It runs within the agent's own
randomness; if it is a module, its parameters are trained with the agent's."""
