"""Which agents have the same structure, so that they can take their steps together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import cast

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import cross_entropy, mean_squared_error
from sheafed.agents.samples import Batch, TensorSamples
from sheafed.vectorized.layers import unknown
from sheafed.vectorized.stacked_layers import trace

OBJECTIVES = (cross_entropy, mean_squared_error)
"""The objectives that are known."""
DIMENSIONS: dict[type[nn.Module], int] = {
    **dict.fromkeys((nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d), 3),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d), 3),
    **dict.fromkeys((nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d), 4),
    **dict.fromkeys((nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d), 4),
}
"""The dimensions of a batch of what a layer takes; with fewer it would take it for one sample."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
MOST_WEIGHTS, MOST_ACTIVATIONS = 1 << 16, 1 << 19
"""Of one agent, the latter of one layer for one batch. Beyond them an agent keeps the processor
busy by itself: copying its weights, or leaving its caches, costs more than stacking saves."""
FULL = (torch.float32, torch.float64)
_TRAINING, _REQUIRES_GRAD = attrgetter("training"), attrgetter("requires_grad")


def layers_of(module: nn.Module | None) -> list[nn.Module]:
    """Return the layers of nested `Sequential`s in order; any other module is one layer."""
    if module is None:
        return []
    if type(module) is not nn.Sequential:
        return [module]
    return [layer for part in module for layer in layers_of(part)]


def why_alone(agent: Agent) -> str | None:
    """Return why an agent cannot take its steps together with others; None if it can."""
    if not agent.learns:
        return "nothing is trained"
    if agent.objective not in OBJECTIVES:
        return "another objective than cross_entropy and mean_squared_error"
    if agent.head is None:
        return "no head"
    if not isinstance(agent.data.train, TensorSamples):
        return "training data that are not in memory"
    if not isinstance(agent.data.train.inputs, Tensor):
        return "inputs of several tensors"
    if agent.precision != "full":
        return f"precision {agent.precision!r}"
    modules = [*agent.encoder.modules(), *agent.head.modules()]
    if any(getattr(module, name, None) for module in modules for name in HOOKS):
        return "hooks on a module"
    layers = [*layers_of(agent.encoder), *layers_of(agent.head)]
    for layer in layers:
        if reason := unknown(layer):
            return reason
    weights = [tensor for layer in layers for tensor in layer.parameters()]
    if len(set(map(id, weights))) != len(weights) or len(weights) != len(agent.parameters):
        return "weights that layers share"
    if any(tensor.dtype not in FULL for tensor in weights):
        return "weights in half precision"
    if sum(tensor.numel() for tensor in weights) > MOST_WEIGHTS:
        return f"more than {MOST_WEIGHTS:,} weights"
    return _unfit(agent)


def signature(agent: Agent) -> Hashable:
    """Return what agents that take their steps together must have in common."""
    layers = [*layers_of(agent.encoder), *layers_of(agent.head)]
    batch = _batch(agent)
    return (
        agent.device,
        agent.objective,
        agent.frozen,
        agent.order.batch_size,
        _shape(batch.inputs),
        None if batch.targets is None else _shape(batch.targets),
        len(layers_of(agent.encoder)),
        tuple(repr(layer) for layer in layers),
        tuple(
            (name, *_shape(tensor), tensor.requires_grad)
            for layer in layers
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        ),
    )


def switched_parts(agent: Agent) -> tuple[list[nn.Module], list[nn.Parameter]]:
    """Return what may be switched during training: modules by their mode, weights by gradients."""
    tops = [top for top in (agent.encoder, agent.head) if top is not None]
    return [module for top in tops for module in top.modules()], agent.parameters


def modes(modules: Iterable[nn.Module], parameters: Iterable[nn.Parameter]) -> tuple[bool, ...]:
    """Return how they are switched, which agents must have in common too."""
    return (*map(_TRAINING, modules), *map(_REQUIRES_GRAD, parameters))


def _unfit(agent: Agent) -> str | None:
    layers = [*layers_of(agent.encoder), *layers_of(agent.head)]
    for layer, x in zip(layers, trace(layers, cast(Tensor, _batch(agent).inputs)), strict=False):
        if x.ndim != DIMENSIONS.get(type(layer), x.ndim):
            return f"a {type(layer).__name__} of {x.ndim} dimensions"
        if x.numel() // len(x) * agent.order.batch_size > MOST_ACTIVATIONS:
            return f"a layer with more than {MOST_ACTIVATIONS:,} activations"
    return None


def _batch(agent: Agent) -> Batch:
    return agent.prepare(agent.data.train.batch(torch.arange(min(2, len(agent.data.train)))))


def _shape(tensor: Tensor) -> tuple[Hashable, ...]:
    return (tuple(tensor.shape[1:]), tensor.dtype)
