"""The next training batches of several agents in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Batch, ByteSamples, TensorSamples, as_labels
from sheafed.vectorized.stacked import Stacked

WHOLE = (TensorSamples, ByteSamples)
"""Samples that are read for all agents at once, by their exact type."""


class StackedBatch(NamedTuple):
    """As many samples of every agent."""

    inputs: Stacked
    targets: Tensor | None
    """`(agents, n, ...)`"""

    def first(self, count: int, agents: Sequence[int]) -> StackedBatch:
        """Return the first samples of some agents, all if there are fewer."""
        if count >= self.inputs.value.shape[1] and len(agents) == self.inputs.agents:
            return self
        chosen = self.inputs.value[list(agents), :count]
        targets = None if self.targets is None else self.targets[list(agents), :count]
        return StackedBatch(Stacked(chosen, len(agents)), targets)

    def of(self, agent: int) -> Batch:
        """Return those of one agent."""
        targets = None if self.targets is None else self.targets[agent]
        return Batch(self.inputs.value[agent], targets)


def next_batches(agents: Sequence[Agent]) -> StackedBatch:
    """Return the next batch of every agent, in its own order, as models take them.

    Args:
        agents: of one structure, with training data in memory.
    """
    samples = [agent.data.train for agent in agents]
    if len({type(s) for s in samples}) > 1 or type(samples[0]) not in WHOLE:
        batches = [agent.next_batch() for agent in agents]
        labels = [batch.targets for batch in batches if batch.targets is not None]
        inputs = Stacked.of([cast(Tensor, batch.inputs) for batch in batches])
        return StackedBatch(inputs, torch.stack(labels) if labels else None)
    held = cast(list[TensorSamples], samples)
    rows = [agent.order.next() for agent in agents]
    raw = torch.stack([s.inputs.index_select(0, r) for s, r in zip(held, rows, strict=True)])
    targets = [s.targets[r] for s, r in zip(held, rows, strict=True) if s.targets is not None]
    whole = Batch(
        raw / 255 if isinstance(held[0], ByteSamples) else raw,
        as_labels(torch.stack(targets)) if targets else None,
    )
    ready = agents[0].prepare(whole)
    return StackedBatch(Stacked(cast(Tensor, ready.inputs), len(agents)), ready.targets)
