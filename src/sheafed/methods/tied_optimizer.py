"""Training what a node has beside its agent's model, as that model is trained."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sheafed.agents.agent import Agent
from sheafed.errors import NonFiniteError


class TiedOptimizer:
    """An optimiser of the agent's kind and settings, which follows its learning rate.

    Args:
        agent: whose optimiser it is like.
        parameters: of the node.
        what: they are, for errors.
        like: a parameter of the agent whose settings apply, where they differ; by default those of
            the optimiser's first group.
        weight_decay: whether weights decay as the agent's do.
    """

    def __init__(
        self,
        agent: Agent,
        parameters: Iterable[nn.Parameter],
        what: str,
        *,
        like: nn.Parameter | None = None,
        weight_decay: bool = True,
    ) -> None:
        self._agent, self._what = agent, what
        self._parameters = list(parameters)
        self._group = _group_of(agent.optimizer, like)
        settings = _settings(type(agent.optimizer), agent.optimizer.param_groups[self._group])
        if not weight_decay and "weight_decay" in settings:
            settings["weight_decay"] = 0.0
        make: Any = type(agent.optimizer)
        self._optimizer: Optimizer = make(self._parameters, **settings)

    def optimizer_step(self, loss: Tensor) -> None:
        """Take one step on a scalar loss, the agent's and this one.

        Each clips its own gradient by the agent's bound.
        """
        self._optimizer.zero_grad(set_to_none=True)
        # Before the agent's scheduler moves it.
        rate = self._agent.optimizer.param_groups[self._group]["lr"]
        self._agent.optimizer_step(loss)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if not gradients:
            return
        if not all(bool(torch.isfinite(g).all()) for g in gradients):
            raise NonFiniteError(
                f"agent {self._agent.name!r}, step {self._agent.steps}: the gradient of the "
                f"{self._what} is not finite; lower the learning rate"
            )
        if self._agent.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._agent.max_grad_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(dict(state))


def _group_of(optimizer: Optimizer, parameter: nn.Parameter | None) -> int:
    """Return which group of an optimiser holds a parameter; the first, if none does."""
    groups = optimizer.param_groups
    holding = [k for k, g in enumerate(groups) if any(p is parameter for p in g["params"])]
    return holding[0] if holding else 0


def _settings(kind: type[Optimizer], group: Mapping[str, Any]) -> dict[str, Any]:
    accepted = inspect.signature(kind).parameters
    return {key: value for key, value in group.items() if key in accepted and key != "params"}
