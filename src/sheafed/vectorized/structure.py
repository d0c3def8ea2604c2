"""Which agents have the same structure, so that they can take their steps together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import cast

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import cross_entropy, mean_squared_error
from sheafed.agents.samples import Batch, TensorSamples
from sheafed.vectorized.layers import DROPOUT, unknown
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
_HOOKS_OF_WEIGHTS = (attrgetter("_backward_hooks"), attrgetter("_post_accumulate_grad_hooks"))
PLAIN = (int, float, str, type(None))
"""What the settings of the known layers are, or tuples and lists of these."""
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
    if WatchedAgents([agent]).changed():
        return "hooks on a module or a weight"
    layers = [*layers_of(agent.encoder), *layers_of(agent.head)]
    for layer in layers:
        if reason := unknown(layer):
            return reason
    if hasattr(agent.encoder, "encode"):
        return "an encoder with encode of its own"
    for module in modules_of(agent):
        for name, value in settings(module).items():
            if not _is_plain(value):
                return f"a {type(module).__name__} with {name} of its own"
    weights = [tensor for layer in layers for tensor in layer.parameters()]
    if len(set(map(id, weights))) != len(weights) or len(weights) != len(agent.parameters):
        return "weights that layers share"
    if any(tensor.dtype not in FULL for tensor in weights):
        return "weights in half precision"
    if sum(tensor.numel() for tensor in weights) > MOST_WEIGHTS:
        return f"more than {MOST_WEIGHTS:,} weights"
    return _unfit(agent)


def modules_of(agent: Agent) -> list[nn.Module]:
    """Return the modules of encoder and head, those that contain others too."""
    tops = [top for top in (agent.encoder, agent.head) if top is not None]
    return [module for top in tops for module in top.modules()]


def settings(module: nn.Module) -> Mapping[str, object]:
    """Return what decides, beside weights, buffers and mode, what a layer computes.

    Its text leaves some out, e.g. that of `AvgPool2d`.
    """
    return {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}


class WatchedAgents:
    """Agents that may step together while they have no hooks, and the objectives of now.

    This is asked in every round, so where modules keep their hooks is looked up once.

    Args:
        agents: any.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._objectives = [(agent, agent.objective) for agent in agents]
        modules = [vars(module) for agent, _ in self._objectives for module in modules_of(agent)]
        self._hooks = [module[name] for module in modules for name in HOOKS if name in module]
        self._weights = [weight for agent, _ in self._objectives for weight in agent.parameters]

    def changed(self) -> bool:
        """Whether an agent has hooks or another objective."""
        return (
            any(self._hooks)
            or any(any(map(hooks, self._weights)) for hooks in _HOOKS_OF_WEIGHTS)
            or any(agent.objective is not before for agent, before in self._objectives)
        )


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
        tuple((type(layer), repr(settings(layer))) for layer in layers),
        tuple(
            (name, *_shape(tensor), tensor.requires_grad)
            for layer in layers
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        ),
    )


def switched_parts(agent: Agent) -> tuple[list[nn.Module], list[nn.Parameter]]:
    """Return what may be switched during training: modules by their mode, weights by gradients."""
    return modules_of(agent), agent.parameters


def modes(modules: Iterable[nn.Module], parameters: Iterable[nn.Parameter]) -> tuple[bool, ...]:
    """Return how they are switched, which agents must have in common too."""
    return (*map(_TRAINING, modules), *map(_REQUIRES_GRAD, parameters))


def _unfit(agent: Agent) -> str | None:
    encoder = layers_of(agent.encoder)
    layers = [*encoder, *layers_of(agent.head)]
    traced = trace(layers, cast(Tensor, _batch(agent).inputs))
    shared = [x.untyped_storage().data_ptr() for x in (traced[0], traced[len(encoder)])]
    for layer, x in zip(layers, traced, strict=False):
        in_place = getattr(layer, "inplace", False) and not isinstance(layer, DROPOUT)
        if in_place and x.untyped_storage().data_ptr() in shared:
            return f"a {type(layer).__name__} that changes inputs or latents in place"
        if x.ndim != DIMENSIONS.get(type(layer), x.ndim):
            return f"a {type(layer).__name__} of {x.ndim} dimensions"
        if x.numel() // len(x) * agent.order.batch_size > MOST_ACTIVATIONS:
            return f"a layer with more than {MOST_ACTIVATIONS:,} activations"
    return None


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _batch(agent: Agent) -> Batch:
    return agent.prepare(agent.data.train.batch(torch.arange(min(2, len(agent.data.train)))))


def _shape(tensor: Tensor) -> tuple[Hashable, ...]:
    return (tuple(tensor.shape[1:]), tensor.dtype)
