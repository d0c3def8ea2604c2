"""A second head, by which an agent's encoder learns what neighbours agree on.

The agent's own head learns own labels alone. At a strong label shift it knows the classes of its
agent and how often they come, and must not unlearn that on pilots, which are of all classes. The
consensus head learns own labels and the consensus on pilots; gradients of both heads train the
encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import UNLABELLED
from sheafed.agents.objectives.supervised import label_loss
from sheafed.agents.precision import half_dtype
from sheafed.errors import InputError
from sheafed.methods.consensus import FEWEST
from sheafed.methods.tied_optimizer import TiedOptimizer


class ConsensusHead:
    """A copy of an agent's head, trained beside it with the agent's optimiser settings.

    Args:
        agent: that learns, with a head that has weights.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.module = copy_head(agent).requires_grad_(True).train()
        like = next(agent.head.parameters()) if agent.head is not None else None
        self.optimizer = TiedOptimizer(agent, self.module.parameters(), "consensus head", like=like)

    def start(self) -> None:
        """Become what the agent's head is now: there is something to learn from here on."""
        self.module.load_state_dict(copy_head(self._agent).state_dict())
        self.optimizer.restart()

    def __call__(self, latents: Tensor) -> Tensor:
        """Return the scores `(n, classes)` of latents."""
        return self._agent.apply_head(latents, self.module)

    def label_loss(self, latents: Tensor, targets: Tensor | None) -> Tensor | None:
        """Return the mean cross-entropy on samples that have labels; None if they are too few."""
        if targets is None:
            return None
        if not targets.is_floating_point():
            targets = targets.long()  # of an objective of the user's own: they may be bool
            known = targets != UNLABELLED
            if not bool(known.all()):  # a copy, and its gradient, cost as much as the head
                latents, targets = latents[known], targets[known]
        if len(targets) < FEWEST:
            return None
        return label_loss(self._agent, self(latents), targets)

    def optimizer_step(self, loss: Tensor) -> None:
        """Take one step of the agent and of this head."""
        self.optimizer.optimizer_step(loss)

    def state(self) -> dict[str, Any]:
        weights = {key: value.clone() for key, value in self.module.state_dict().items()}
        return {"weights": weights, "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


def copy_head(agent: Agent) -> nn.Module:
    """Return a copy of the head, in float32 if it is in less: small steps would be lost there."""
    if agent.head is None:
        raise InputError(f"agent {agent.name!r} has no head to copy; give it one")
    copied = deepcopy(agent.head)
    return copied if half_dtype(copied) is None else copied.float()
