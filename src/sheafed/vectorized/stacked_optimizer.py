"""The optimiser steps of several agents at once: SGD, Adam and AdamW, as torch has them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from sheafed.agents.agent import Agent
from sheafed.vectorized.stacked_layers import unstack

KINDS = (SGD, Adam, AdamW)
"""The optimisers that are known, by their exact type."""
NUMBERS = ("lr", "weight_decay", "momentum", "dampening", "betas", "eps")
"""What agents may have different values of, unless it is 0 for some of them only."""
UNKNOWN = ("amsgrad", "maximize", "capturable", "differentiable")
"""Switches of torch that must be off."""

State = dict[str, Any]
Number = float | Tensor
"""The same for all agents, or one for each, `(agents, 1, ...)`."""


def optimizer_signature(optimizer: Optimizer, parameters: Sequence[Tensor]) -> Hashable:
    """Return what optimisers must have in common to take their steps together.

    None if the optimiser is not known; each takes its step by itself then.

    Args:
        optimizer: of one agent.
        parameters: what it updates, and perhaps others.
    """
    found = switches(optimizer)
    if found is None:
        return None
    places = {parameter: k for k, parameter in enumerate(parameters)}
    held = [tuple(places[p] for p in group["params"]) for group in optimizer.param_groups]
    return found, tuple(held)


def switches(optimizer: Optimizer) -> Hashable:
    """Return what of the signature may change during training, e.g. by a scheduler.

    None if the optimiser is not known, as it is now.
    """
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if type(optimizer) not in KINDS or hooks:
        return None
    groups = []
    for group in optimizer.param_groups:
        numbers = [(name, group[name]) for name in NUMBERS if name in group]
        if any(group.get(name) for name in UNKNOWN) or any(
            isinstance(value, Tensor) for _, value in numbers
        ):
            return None
        zeros = tuple(name for name, value in numbers if value == 0)
        flags = (group.get("nesterov"), group.get("decoupled_weight_decay"))
        groups.append((len(group["params"]), zeros, *flags))
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
    optimizers: Sequence[Optimizer],
    parameters: Sequence[Sequence[Tensor]],
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> None:
    """Update the agents' weights and the states of their optimisers.

    Args:
        optimizers: of the agents, with the same `optimizer_signature`, which is not None.
        parameters: each of all agents.
        weights: the same, stacked, `(agents, ...)`.
        gradients: likewise; None where a parameter has none.
    """
    step = _sgd if isinstance(optimizers[0], SGD) else _adam
    places = {same[0]: k for k, same in enumerate(parameters)}
    for g, group in enumerate(optimizers[0].param_groups):
        settings = _Settings(optimizers, g)
        for k in (places[parameter] for parameter in group["params"]):
            gradient = gradients[k]
            if gradient is None:
                continue
            own = parameters[k]
            states: list[State] = []  # plain SGD has none
            if isinstance(optimizers[0], Adam) or settings.on("momentum"):
                states = [optimizer.state[p] for optimizer, p in zip(optimizers, own, strict=True)]
            step(weights[k].detach(), gradient, states, settings)
            unstack(weights[k], own)
    for optimizer in optimizers:
        optimizer._opt_called = True  # type: ignore[attr-defined]  # as schedulers want it


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
        momentum, before = settings.number("momentum", weight), _Moment(states, "momentum_buffer")
        direction = before.stacked(weight).mul_(momentum)
        kept = 1 - settings.number("dampening", weight)
        direction += kept * gradient if settings.on("dampening") else gradient
        if before.absent:  # the first gradient is taken whole
            is_first = torch.tensor([part is None for part in before.parts])
            direction = torch.where(_column(is_first, weight), gradient, direction)
        before.replace(direction)
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
    steps, means, squares = (_Moment(states, name) for name in ("step", "exp_avg", "exp_avg_sq"))
    taken = 1 + steps.stacked(torch.zeros(len(states)))
    mean = means.stacked(weight)
    mean = mean + (1 - beta_1) * (gradient - mean)
    square = squares.stacked(weight) * beta_2 + (1 - beta_2) * gradient.square()
    for moment, value in ((steps, taken), (means, mean), (squares, square)):
        moment.replace(value)
    exponent = _column(taken.double(), weight)
    corrections = [(1 - beta**exponent).to(weight) for beta in (beta_1, beta_2)]
    scale = (square.sqrt() / corrections[1].sqrt()).add_(settings.number("eps", weight))
    weight.sub_((rate / corrections[0]) * (mean / scale))


class _Moment:
    """A moment in the states of several optimisers, which have none before their first step."""

    def __init__(self, states: Sequence[State], name: str) -> None:
        self._states, self._name = states, name
        self.parts: list[Tensor | None] = [state.get(name) for state in states]
        self.absent = any(part is None for part in self.parts)

    def stacked(self, like: Tensor) -> Tensor:
        """Return it for every agent, in the shape of `like`; 0 where there is none."""
        zero = torch.zeros_like(like[0])
        return torch.stack([zero if part is None else part for part in self.parts])

    def replace(self, stacked: Tensor) -> None:
        """Write another value to the states."""
        values = stacked.unbind()
        if self.absent:
            for state, part, value in zip(self._states, self.parts, values, strict=True):
                if part is None:
                    state[self._name] = torch.empty_like(value)
        own = [state[self._name] for state in self._states]
        torch._foreach_copy_(own, values)


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per agent in a shape that multiplies `(agents, ...)`."""
    return values.to(like.device).view(-1, *[1] * (like.ndim - 1))
