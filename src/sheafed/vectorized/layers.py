"""Layers as they act on the activations of several agents at once.

Each function takes a layer, which stands for that of every agent, its weights and buffers stacked
over agents, and activations; agents do not mix. What is not in `FORMS` is not known, and agents
that have it take their steps one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sheafed.vectorized.stacked import Stacked

Weights = Mapping[str, Tensor]
"""Parameters and buffers of a layer by name, `(agents, ...)`."""
Form = Callable[[Any, Weights, Stacked, bool], Stacked]
"""From a layer, its weights, activations and whether it is in training mode to activations."""


def linear(layer: nn.Linear, weights: Weights, x: Stacked, training: bool) -> Stacked:
    rows = x.apart()
    flat = rows.flatten(1, -2)
    if layer.bias is None:
        out = flat @ weights["weight"].mT
    else:
        out = torch.baddbmm(weights["bias"][:, None], flat, weights["weight"].mT)
    return Stacked(out.reshape(*rows.shape[:-1], -1), x.agents)


def convolution(
    layer: nn.Conv1d | nn.Conv2d, weights: Weights, x: Stacked, training: bool
) -> Stacked:
    """Convolve the channels of every agent by its own kernels."""
    convolve: Any = functional.conv2d if isinstance(layer, nn.Conv2d) else functional.conv1d
    out = convolve(
        x.joined(),
        weights["weight"].flatten(0, 1),
        None if layer.bias is None else weights["bias"].flatten(),
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=x.agents * layer.groups,
    )
    return Stacked(out, x.agents, side_by_side=True)


def batch_norm(
    layer: nn.BatchNorm1d | nn.BatchNorm2d, weights: Weights, x: Stacked, training: bool
) -> Stacked:
    """Normalise by each agent's own statistics; in training mode its buffers change in place."""
    if training and layer.track_running_stats:
        weights["num_batches_tracked"].add_(1)
    flat = {name: weight.flatten() for name, weight in weights.items()}
    used = not training or layer.track_running_stats
    value = functional.batch_norm(
        x.joined(),
        flat.get("running_mean") if used else None,
        flat.get("running_var") if used else None,
        flat.get("weight"),
        flat.get("bias"),
        training or "running_mean" not in flat,
        layer.momentum or 0.0,
        layer.eps,
    )
    joined = Stacked(value, x.agents, side_by_side=True)
    return joined if x.side_by_side else Stacked(joined.apart(), x.agents)


def layer_norm(layer: nn.LayerNorm, weights: Weights, x: Stacked, training: bool) -> Stacked:
    rows = x.apart()
    out = functional.layer_norm(rows, layer.normalized_shape, eps=layer.eps)
    between = rows.ndim - 1 - len(layer.normalized_shape)
    for name, apply in (("weight", torch.mul), ("bias", torch.add)):
        if name in weights:
            shape = (x.agents, *[1] * between, *layer.normalized_shape)
            out = apply(out, weights[name].reshape(shape))
    return Stacked(out, x.agents)


def group_norm(layer: nn.GroupNorm, weights: Weights, x: Stacked, training: bool) -> Stacked:
    value = functional.group_norm(
        x.joined(),
        x.agents * layer.num_groups,
        weights["weight"].flatten() if "weight" in weights else None,
        weights["bias"].flatten() if "bias" in weights else None,
        layer.eps,
    )
    return Stacked(value, x.agents, side_by_side=True)


def elementwise(layer: nn.Module, weights: Weights, x: Stacked, training: bool) -> Stacked:
    return x.with_value(layer(x.value))


def rectify(layer: nn.Module, weights: Weights, x: Stacked, training: bool) -> Stacked:
    """Apply ReLU in place: what made `x` needs it no more, see `MAKES_ITS_OUTPUT`."""
    return x.with_value(functional.relu_(x.value))


def by_channel(layer: nn.Module, weights: Weights, x: Stacked, training: bool) -> Stacked:
    """Apply a layer that treats all channels alike, e.g. pooling."""
    return Stacked(layer(x.joined()), x.agents, side_by_side=True)


def average(layer: nn.Module, weights: Weights, x: Stacked, training: bool) -> Stacked:
    """Average images; the gradient keeps their layout, or layers before would copy theirs."""
    kept: Tensor = _KeepLayout.apply(x.joined())  # type: ignore[no-untyped-call]
    return Stacked(layer(kept), x.agents, side_by_side=True)


class _KeepLayout(torch.autograd.Function):
    """The identity; its gradient has the layout of images."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous(memory_format=torch.channels_last)


def flatten(layer: nn.Flatten, weights: Weights, x: Stacked, training: bool) -> Stacked:
    return Stacked(x.apart().flatten(2), x.agents)


def unflatten(layer: nn.Unflatten, weights: Weights, x: Stacked, training: bool) -> Stacked:
    rows = x.apart()
    return Stacked(rows.reshape(*rows.shape[:2], *layer.unflattened_size), x.agents)


FORMS: dict[type[nn.Module], Form] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.Flatten: flatten,
    nn.Unflatten: unflatten,
    **dict.fromkeys(
        (
            *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU),
            *(nn.SiLU, nn.Mish, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Tanh, nn.Sigmoid),
            *(nn.Softplus, nn.Softsign),
        ),
        elementwise,
    ),
    **dict.fromkeys(
        (
            *(nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d),
            *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d),
        ),
        by_channel,
    ),
    nn.AdaptiveAvgPool2d: average,
}
"""The layers that are known, by their exact type; and dropout, whose noise is each agent's own."""

MAKES_ITS_OUTPUT = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)
"""Layers whose output is a tensor of its own, which their backward pass does not need."""
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)


def unknown(layer: nn.Module) -> str | None:
    """Return why a layer cannot act on several agents at once; None if it can."""
    kind = type(layer).__name__
    if type(layer) not in FORMS and type(layer) not in DROPOUT:
        return f"a layer {kind}"
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.padding_mode != "zeros":
        return f"a {kind} with padding_mode={layer.padding_mode!r}"
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.momentum is None:
        return f"a {kind} with momentum=None"
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return "a Flatten of other dimensions than (1, -1)"
    if isinstance(layer, nn.Unflatten) and layer.dim != 1:
        return "an Unflatten of another dimension than 1"
    if getattr(layer, "return_indices", False):
        return f"a {kind} with return_indices=True"
    return None
