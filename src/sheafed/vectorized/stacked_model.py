"""Encoders and heads of several agents of one structure as one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.vectorized.stacked import Stacked
from sheafed.vectorized.stacked_layers import Members, SameLayers, StackedLayers
from sheafed.vectorized.structure import layers_of


class SameModels:
    """The encoders and heads of several agents; it lives as long as they do.

    Args:
        agents: of one structure.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = agents
        self.encoders = SameLayers(agents, [layers_of(agent.encoder) for agent in agents])
        self.heads = SameLayers(agents, [layers_of(agent.head) for agent in agents])
        self.parameters = [*self.encoders.parameters, *self.heads.parameters]
        """Of every agent, in the order of `Agent.parameters`."""
        self._beside: dict[str, SameLayers] = {}

    def beside(self, what: str, modules: Callable[[], Sequence[nn.Module]]) -> SameLayers:
        """Return further modules of the agents, e.g. second heads, which are asked for once."""
        if what not in self._beside:
            self._beside[what] = SameLayers(self.agents, [layers_of(m) for m in modules()])
        return self._beside[what]


class StackedModel:
    """The models of agents as they are now, stacked over agents."""

    def __init__(self, of: SameModels) -> None:
        self.encoders, self.heads = StackedLayers(of.encoders), StackedLayers(of.heads)
        self.parameters = [*self.encoders.parameters, *self.heads.parameters]
        """Leaves `(agents, ...)`, in the order of `Agent.parameters`."""

    def encode(self, inputs: Stacked, members: Members = None) -> Stacked:
        """Return latents in evaluation mode."""
        return self.encoders.apply(inputs, members)

    def encode_in_training(self, inputs: Stacked, members: Members = None) -> Stacked:
        """Return latents in the mode that every layer is in."""
        return self.encoders.apply_in_training(inputs, inputs.value[0], members)

    def apply_heads_in_training(
        self, latents: Stacked, inputs: Stacked, members: Members = None
    ) -> Stacked:
        """Return what the heads make of the latents of inputs, in the mode of every layer."""
        example = self.example_of_latents(inputs) if self.heads.of.drops else None
        return self.heads.apply_in_training(latents, example, members)

    def example_of_latents(self, inputs: Stacked) -> Tensor:
        """Return latents as one agent has them alone, which matter by shape and layout alone."""
        return self.encoders.of.trace(inputs.value[0])[-1]

    def write_statistics(self) -> None:
        """Give all agents the running statistics that they have after their training pass."""
        self.encoders.write_statistics()
        self.heads.write_statistics()

    def write_statistics_of(self, agent: int) -> None:
        """Give one agent its statistics: until it asks for its loss, it may use those before."""
        self.encoders.write_statistics_of(agent)
        self.heads.write_statistics_of(agent)
