"""Training what a node has beside its agent's model, as that model is trained."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sheafed.agents.agent import Agent
from sheafed.errors import NonFiniteError
from sheafed.vectorized.stacked_layers import StackedLayers
from sheafed.vectorized.stacked_optimizer import (
    clip_gradients,
    optimizer_signature,
    optimizer_step,
)

Rates = Mapping[int, float]
"""Learning rates by the position of an agent."""


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
        self.parameters = list(parameters)
        self._group = _group_of(agent.optimizer, like)
        settings = _settings(type(agent.optimizer), agent.optimizer.param_groups[self._group])
        if not weight_decay and "weight_decay" in settings:
            settings["weight_decay"] = 0.0
        make: Any = type(agent.optimizer)
        self.optimizer: Optimizer = make(self.parameters, **settings)

    def optimizer_step(self, loss: Tensor) -> None:
        """Take one step on a scalar loss, the agent's and this one.

        Each clips its own gradient by the agent's bound.
        """
        for parameter in self.parameters:  # `optimizer.zero_grad` takes as long as a small head
            parameter.grad = None
        rate = self.rate
        self._agent.optimizer_step(loss)
        self.apply_gradients(rate)

    @property
    def rate(self) -> float:
        """The agent's learning rate; a step has that from before its scheduler moves it."""
        rate: float = self._agent.optimizer.param_groups[self._group]["lr"]
        return rate

    def apply_gradients(self, rate: float) -> None:
        """Take one step by the gradients that the parameters have, if they have any."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if not gradients:
            return
        if not _are_finite(gradients):
            self.refuse_gradient()
        if self._agent.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._agent.max_grad_norm)
        self.follow(rate)
        self.optimizer.step()

    def follow(self, rate: float) -> None:
        """Take this learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def refuse_gradient(self) -> NoReturn:
        """Raise: the gradient is not finite."""
        raise NonFiniteError(
            f"agent {self._agent.name!r}, step {self._agent.steps}: the gradient of the "
            f"{self._what} is not finite; lower the learning rate"
        )

    def restart(self) -> None:
        """Forget all steps so far, e.g. momenta: the parameters are others now."""
        self.optimizer.state.clear()

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned, unless that is of another kind of optimiser.

        Agents that are only used may have another than in the run; they cannot train on.
        """
        settings = [set(found["param_groups"][0]) for found in (state, self.state_dict())]
        if settings[0] == settings[1]:
            self.optimizer.load_state_dict(dict(state))


@torch.no_grad()
def step_together(
    agents: Sequence[Agent], tied: Sequence[TiedOptimizer], stacked: StackedLayers, rates: Rates
) -> None:
    """Do what `apply_gradients` of each does, given gradients of all weights, stacked.

    Args:
        agents: whose optimisers these are like.
        tied: their optimisers.
        stacked: weights with their gradients, those of all agents.
        rates: learning rates, of the agents that take a step.
    """
    gradients = [weight.grad for weight in stacked.parameters]
    known = [gradient for gradient in gradients if gradient is not None]
    if not known:
        return
    finite = torch.stack([g.isfinite().flatten(1).all(1) for g in known]).all(0).tolist()
    for one, is_finite in zip(tied, finite, strict=True):
        if not is_finite:
            one.refuse_gradient()
    found = {optimizer_signature(one.optimizer, one.parameters) for one in tied}
    if len(found) == 1 and None not in found and len(rates) == len(tied):
        clip_gradients(agents, known)
        for k, rate in rates.items():
            tied[k].follow(rate)
        own = stacked.of.parameters
        optimizer_step([one.optimizer for one in tied], own, stacked.parameters, gradients)
        return
    for k, rate in rates.items():
        for parameter, gradient in zip(tied[k].parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient[k]
        tied[k].apply_gradients(rate)


def _are_finite(tensors: list[Tensor]) -> bool:
    """Whether all entries are finite."""
    # A norm is finite only if all entries are. It may overflow where they are: then each is asked.
    norms = torch.stack(torch._foreach_norm(tensors))
    return bool(norms.isfinite().all()) or all(bool(t.isfinite().all()) for t in tensors)


def _group_of(optimizer: Optimizer, parameter: nn.Parameter | None) -> int:
    """Return which group of an optimiser holds a parameter; the first, if none does."""
    groups = optimizer.param_groups
    holding = [k for k, g in enumerate(groups) if any(p is parameter for p in g["params"])]
    return holding[0] if holding else 0


def _settings(kind: type[Optimizer], group: Mapping[str, Any]) -> dict[str, Any]:
    accepted = inspect.signature(kind).parameters
    return {key: value for key, value in group.items() if key in accepted and key != "params"}
