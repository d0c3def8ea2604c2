"""The optimiser steps of several agents at once: SGD, Adam and AdamW, as torch has them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from sheafed.agents.agent import Agent
from sheafed.vectorized.stacked_model import SameLayers, unstack

KINDS = (SGD, Adam, AdamW)
"""The optimisers that are known, by their exact type."""
NUMBERS = ("lr", "weight_decay", "momentum", "dampening", "betas", "eps")
"""What agents may have different values of, unless it is 0 for some of them only."""
UNKNOWN = ("amsgrad", "maximize", "capturable", "differentiable")
"""Switches of torch that must be off."""

State = dict[str, Any]
Number = float | Tensor
"""The same for all agents, or one for each, `(agents, 1, ...)`."""


def optimizer_signature(agent: Agent) -> Hashable:
    """Return what agents must have in common to take their optimiser steps together.

    None if their optimiser is not known; each takes its step by itself then.
    """
    optimizer = agent.optimizer
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    if type(optimizer) not in KINDS or any(hooks):
        return None
    places = {parameter: k for k, parameter in enumerate(agent.parameters)}
    groups = []
    for group in optimizer.param_groups:
        numbers = {name: group[name] for name in NUMBERS if name in group}
        if any(group.get(name) for name in UNKNOWN) or any(
            isinstance(value, Tensor) for value in numbers.values()
        ):
            return None
        zeros = tuple(name for name, value in numbers.items() if value == 0)
        held = tuple(places[parameter] for parameter in group["params"])
        groups.append((held, zeros, group.get("nesterov"), group.get("decoupled_weight_decay")))
    return type(optimizer), tuple(groups)


@torch.no_grad()
def clip_gradients(agents: Sequence[Agent], gradients: Sequence[Tensor]) -> None:
    """Bound each agent's gradient, given those of its parameters `(agents, ...)`, in place."""
    if not gradients or all(agent.max_grad_norm is None for agent in agents):
        return
    parts = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    norms = torch.linalg.vector_norm(parts, dim=0)
    for agent, norm in zip(agents, norms, strict=True):
        if agent.max_grad_norm is not None:
            agent.check_gradient(norm)
    bounds = [torch.inf if a.max_grad_norm is None else a.max_grad_norm for a in agents]
    factors = (torch.tensor(bounds, dtype=norms.dtype, device=norms.device) / (norms + 1e-6)).clamp(
        max=1.0
    )
    for gradient in gradients:
        gradient.mul_(_column(factors, gradient))


@torch.no_grad()
def optimizer_step(
    of: SameLayers, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> None:
    """Update the agents' weights and the states of their optimisers.

    Args:
        of: agents with the same `optimizer_signature`, which is not None.
        weights: stacked, in the order of their parameters, `(agents, ...)`.
        gradients: likewise; None where a parameter has none.
    """
    optimizers = [agent.optimizer for agent in of.agents]
    step = _sgd if isinstance(optimizers[0], SGD) else _adam
    places = {parameter: k for k, parameter in enumerate(of.agents[0].parameters)}
    for g, group in enumerate(optimizers[0].param_groups):
        settings = _Settings(optimizers, g)
        for k in (places[parameter] for parameter in group["params"]):
            gradient = gradients[k]
            if gradient is None:
                continue
            own = of.parameters[k]
            states: list[State] = []  # plain SGD has none
            if isinstance(optimizers[0], Adam) or settings.on("momentum"):
                states = [optimizer.state[p] for optimizer, p in zip(optimizers, own, strict=True)]
            step(weights[k].detach(), gradient, states, settings)
            unstack(weights[k], own)
    for agent in of.agents:
        agent.optimizer._opt_called = True  # type: ignore[attr-defined]  # as schedulers want it
        agent.count_step()


class _Settings:
    """The settings of one group of parameters of several optimisers."""

    def __init__(self, optimizers: Sequence[Optimizer], group: int) -> None:
        self._groups = [optimizer.param_groups[group] for optimizer in optimizers]
        self._numbers: dict[tuple[str, int | None], float | list[float]] = {}

    def on(self, name: str) -> bool:
        """Whether a setting is on, or not 0, which it is for all agents or for none."""
        return bool(self._groups[0].get(name))

    def number(self, name: str, like: Tensor, part: int | None = None) -> Number:
        """Return a setting, or a part of one, to multiply `like` by."""
        if (name, part) not in self._numbers:
            values = [g[name] if part is None else g[name][part] for g in self._groups]
            self._numbers[name, part] = values[0] if len(set(values)) == 1 else values
        found = self._numbers[name, part]
        if not isinstance(found, list):
            return found
        return _column(torch.tensor(found, dtype=torch.float64), like).to(like)


def _sgd(weight: Tensor, gradient: Tensor, states: Sequence[State], settings: _Settings) -> None:
    if settings.on("weight_decay"):
        gradient = gradient + settings.number("weight_decay", weight) * weight
    direction = gradient
    if settings.on("momentum"):
        momentum, name = settings.number("momentum", weight), "momentum_buffer"
        is_first = torch.tensor([state.get(name) is None for state in states], device=weight.device)
        direction = momentum * _moment(states, name, weight)
        direction = direction + (1 - settings.number("dampening", weight)) * gradient
        if bool(is_first.any()):  # the first gradient is taken whole
            direction = torch.where(_column(is_first, weight), gradient, direction)
        _keep(states, name, direction)
        if settings.on("nesterov"):
            direction = gradient + momentum * direction
    weight.sub_(settings.number("lr", weight) * direction)


def _adam(weight: Tensor, gradient: Tensor, states: Sequence[State], settings: _Settings) -> None:
    rate = settings.number("lr", weight)
    if settings.on("weight_decay"):
        decay = settings.number("weight_decay", weight)
        if settings.on("decoupled_weight_decay"):
            weight.mul_(1 - rate * decay)
        else:
            gradient = gradient + decay * weight
    beta_1, beta_2 = settings.number("betas", weight, 0), settings.number("betas", weight, 1)
    steps = 1 + torch.stack([state.get("step", torch.zeros(())) for state in states])
    mean = _moment(states, "exp_avg", weight)
    mean = mean + (1 - beta_1) * (gradient - mean)
    square = _moment(states, "exp_avg_sq", weight) * beta_2 + (1 - beta_2) * gradient.square()
    for name, value in (("exp_avg", mean), ("exp_avg_sq", square), ("step", steps)):
        _keep(states, name, value)
    taken = _column(steps.double(), weight)
    corrections = [(1 - beta**taken).to(weight) for beta in (beta_1, beta_2)]
    scale = (square.sqrt() / corrections[1].sqrt()).add_(settings.number("eps", weight))
    weight.sub_((rate / corrections[0]) * (mean / scale))


def _moment(states: Sequence[Mapping[str, Tensor]], name: str, like: Tensor) -> Tensor:
    """Return a moment of every agent, `(agents, ...)`; 0 before its first step."""
    zero = torch.zeros_like(like[0])
    return torch.stack([found if (found := s.get(name)) is not None else zero for s in states])


def _keep(states: Sequence[State], name: str, stacked: Tensor) -> None:
    """Write a moment to the states of the optimisers."""
    for state, part in zip(states, stacked, strict=True):
        if state.get(name) is None:
            state[name] = torch.empty_like(part)
    unstack(stacked, [state[name] for state in states])


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per agent in a shape that multiplies `(agents, ...)`."""
    return values.to(like.device).view(-1, *[1] * (like.ndim - 1))
