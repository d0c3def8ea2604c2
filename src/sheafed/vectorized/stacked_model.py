"""Encoders and heads of several agents of one structure as one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.vectorized.layers import DROPOUT, FORMS
from sheafed.vectorized.stacked import Stacked
from sheafed.vectorized.structure import dropout_inputs, layers_of


class SameLayers:
    """The layers of several agents, side by side; it lives as long as the agents do.

    Args:
        agents: of one structure.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = agents
        self.encoder_layers = len(layers_of(agents[0].encoder))
        own = [[*layers_of(agent.encoder), *layers_of(agent.head)] for agent in agents]
        self.layers: list[tuple[nn.Module, ...]] = list(zip(*own, strict=True))
        """Of every agent, by position."""
        self.parameters = list(zip(*(agent.parameters for agent in agents), strict=True))
        """Of every agent, in the order of `Agent.parameters`, which is that of the layers."""
        self._dropout_inputs: dict[tuple[int, ...], list[Tensor]] = {}

    def dropout_inputs(self, inputs: Tensor) -> list[Tensor]:
        """Return inputs of the dropout layers, which matter by shape and layout alone.

        Args:
            inputs: of one agent.
        """
        if not any(isinstance(same[0], DROPOUT) for same in self.layers):
            return []
        key = (*inputs.shape, *inputs.stride())
        if key not in self._dropout_inputs:
            self._dropout_inputs[key] = dropout_inputs(self.agents[0], inputs)
        return self._dropout_inputs[key]


class StackedModel:
    """The weights of agents as they are now, stacked over agents, and what they compute."""

    def __init__(self, of: SameLayers) -> None:
        self._of = of
        self.parameters = [
            _stack(same).requires_grad_(same[0].requires_grad) for same in of.parameters
        ]
        """Leaves `(agents, ...)`, in the order of `Agent.parameters`."""
        self._moved: list[tuple[list[Tensor | None], Tensor]] = []
        weights = iter(self.parameters)
        self._weights: list[dict[str, Tensor]] = [
            {name: next(weights) for name, _ in same[0].named_parameters()} for same in of.layers
        ]

    def encode(self, inputs: Stacked) -> Stacked:
        """Return latents in evaluation mode."""
        return self._apply(self._of.encoder_layers, inputs)

    def outputs_in_training(self, inputs: Stacked) -> Stacked:
        """Return what the heads give in the mode that every layer is in.

        Dropout draws from each agent's own stream; see `move_statistics` for batch norm.
        """
        layouts = iter(self._of.dropout_inputs(inputs.value[0]))
        return self._apply(len(self._of.layers), inputs, layouts)

    @torch.no_grad()
    def move_statistics(self, agent: int) -> None:
        """Give one agent the running statistics that it has after its training pass.

        Not all at once: until an agent asks for its loss, it may use those from before.
        """
        for own, stacked in self._moved:
            into = own[agent]
            if into is not None:
                into.copy_(stacked[agent])

    def _apply(self, layers: int, x: Stacked, layouts: Iterator[Tensor] | None = None) -> Stacked:
        for same, weights in zip(self._of.layers[:layers], self._weights, strict=False):
            layer = same[0]
            training = layouts is not None and layer.training
            if isinstance(layer, DROPOUT):
                layout = None if layouts is None else next(layouts)
                if layout is not None and training:
                    x = self._drop(same, x, layout)
                continue
            buffers = {
                name: _stack([other._buffers[name] for other in same]) for name in layer._buffers
            }
            x = FORMS[type(layer)](layer, {**weights, **buffers}, x, training)
            if training:
                for name, stacked in buffers.items():
                    self._moved.append(([other._buffers[name] for other in same], stacked))
        return x

    def _drop(self, layers: Sequence[nn.Module], x: Stacked, layout: Tensor) -> Stacked:
        """Multiply by what each agent's dropout makes of ones, which is what it draws alone."""
        ones, factors = torch.ones_like(layout), []
        for agent, layer in zip(self._of.agents, layers, strict=True):
            with agent.rng_context():
                factors.append(layer(ones))
        noise = Stacked.of(factors)
        return x.with_value(x.value * (noise.joined() if x.side_by_side else noise.value))


@torch.no_grad()
def _stack(parts: Sequence[Tensor | None]) -> Tensor:
    return torch.stack([part for part in parts if part is not None])


@torch.no_grad()
def unstack(stacked: Tensor, parts: Sequence[Tensor | None]) -> None:
    """Copy each agent's part of a tensor `(agents, ...)` back to where it came from."""
    into = [part for part in parts if part is not None]
    torch._foreach_copy_(into, stacked.detach().unbind())
