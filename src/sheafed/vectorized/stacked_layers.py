"""Layers of several agents of one structure as one model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.vectorized.layers import DROPOUT, FORMS, MAKES_ITS_OUTPUT, rectify
from sheafed.vectorized.stacked import Stacked

Members = Sequence[int] | None
"""The positions of some agents; None stands for all."""


class SameLayers:
    """The layers of several agents, side by side; it lives as long as the agents do.

    Args:
        agents: of one structure.
        layers: of each agent, in the order in which they act.
    """

    def __init__(self, agents: Sequence[Agent], layers: Sequence[Sequence[nn.Module]]) -> None:
        self.agents = agents
        self.layers: list[tuple[nn.Module, ...]] = list(zip(*layers, strict=True))
        """Of every agent, by position."""
        own = ([p for layer in of_one for p in layer.parameters()] for of_one in layers)
        self.parameters: list[tuple[nn.Parameter, ...]] = list(zip(*own, strict=True))
        """Of every agent, in the order of the layers."""
        self.drops = any(isinstance(same[0], DROPOUT) for same in self.layers)
        """Whether any layer is dropout."""
        self._traces: dict[tuple[int, ...], list[Tensor]] = {}

    def trace(self, example: Tensor) -> list[Tensor]:
        """Return the input of every layer and the last output, in evaluation mode.

        They matter by shape and layout alone: those decide in which order dropout draws.

        Args:
            example: an input of one agent.
        """
        key = (*example.shape, *example.stride())
        if key not in self._traces:
            self._traces[key] = trace([same[0] for same in self.layers], example)
        return self._traces[key]


class StackedLayers:
    """The weights of agents as they are now, stacked over agents, and what they compute."""

    def __init__(self, of: SameLayers) -> None:
        self.of = of
        self.parameters = [
            stack(same).requires_grad_(same[0].requires_grad) for same in of.parameters
        ]
        """Leaves `(agents, ...)`, in the order of the layers."""
        weights = iter(self.parameters)
        self._weights: list[dict[str, Tensor]] = [
            {name: next(weights) for name, _ in same[0].named_parameters()} for same in of.layers
        ]
        self._moved: list[tuple[list[Tensor], Tensor]] = []

    def apply(self, x: Stacked, members: Members = None) -> Stacked:
        """Return what the layers give in evaluation mode."""
        return self._apply(x, members, None)

    def apply_in_training(
        self, x: Stacked, example: Tensor | None, members: Members = None
    ) -> Stacked:
        """Return what the layers give in the mode that each of them is in.

        Dropout draws from each agent's own stream. Statistics of batch norm move in place when
        they are written back, and no sooner.

        Args:
            x: activations of all agents, or of the members.
            example: the input as one agent has it alone, if there is dropout.
            members: the agents, by position.
        """
        layouts = self.of.trace(example) if self.of.drops and example is not None else []
        return self._apply(x, members, layouts)

    @torch.no_grad()
    def write_statistics(self) -> None:
        """Give all agents the running statistics that they have after their training pass."""
        for own, stacked in self._moved:
            torch._foreach_copy_(own, stacked.unbind())
        self._moved = []

    @torch.no_grad()
    def write_statistics_of(self, agent: int) -> None:
        """Give one agent what `write_statistics` gives all."""
        for own, stacked in self._moved:
            own[agent].copy_(stacked[agent])

    def _apply(self, x: Stacked, members: Members, layouts: Sequence[Tensor] | None) -> Stacked:
        agents, some = self.of.agents, None
        if members is not None and len(members) < len(agents):
            some, agents = torch.tensor(members), [agents[m] for m in members]
        for k, (same, weights) in enumerate(zip(self.of.layers, self._weights, strict=True)):
            if some is not None:
                same = tuple(same[m] for m in members or ())
                weights = {
                    name: w.index_select(0, some.to(w.device)) for name, w in weights.items()
                }
            layer = same[0]
            training = layouts is not None and layer.training
            if isinstance(layer, DROPOUT):
                if layouts is not None and training:
                    x = _drop(agents, same, x, layouts[k])
                continue
            own = {
                name: _given([other._buffers[name] for other in same]) for name in layer._buffers
            }
            buffers = {name: stack(parts) for name, parts in own.items() if parts}
            after = type(self.of.layers[k - 1][0]) if k else None
            fresh = type(layer) is nn.ReLU and after in MAKES_ITS_OUTPUT
            form = rectify if fresh else FORMS[type(layer)]
            x = form(layer, {**weights, **buffers}, x, training)
            if training:
                self._moved += [(own[name], stacked) for name, stacked in buffers.items()]
        return x


def _drop(
    agents: Sequence[Agent], layers: Sequence[nn.Module], x: Stacked, layout: Tensor
) -> Stacked:
    """Multiply by what each agent's dropout makes of ones, which is what it draws alone."""
    ones, factors = torch.ones_like(layout), []
    for agent, layer in zip(agents, layers, strict=True):
        with agent.rng_context():
            factors.append(layer(ones.clone() if layer.inplace else ones))
    noise = Stacked.of(factors)
    return x.with_value(x.value * (noise.joined() if x.side_by_side else noise.value))


@torch.no_grad()
def trace(layers: Sequence[nn.Module], x: Tensor) -> list[Tensor]:
    """Return the input of every layer and the last output, in evaluation mode."""
    found = [x]
    modes = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = False
            x = layer(x.clone() if getattr(layer, "inplace", False) else x)
            found.append(x)
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
    return found


def _given(parts: Sequence[Tensor | None]) -> list[Tensor]:
    return [part for part in parts if part is not None]


@torch.no_grad()
def stack(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts))


@torch.no_grad()
def unstack(stacked: Tensor, parts: Sequence[Tensor]) -> None:
    """Copy each agent's part of a tensor `(agents, ...)` back to where it came from."""
    torch._foreach_copy_(list(parts), stacked.detach().unbind())
