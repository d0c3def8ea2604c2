"""Agents of one structure that take a round together.

Everything is computed for all members when the first of them asks, and each is given its own part
as a leaf of the autograd graph. What a method makes of that part, e.g. a penalty beside the loss,
goes backward as usual, up to the leaf. When all members are ready for their optimiser step, the
gradients at the leaves go backward through the stacked model, and all steps are taken at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import cast

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.agents.samples import Batch
from sheafed.errors import InputError
from sheafed.pilots.pilot_set import PilotSet
from sheafed.tensor_tree import select_rows
from sheafed.vectorized.objectives import losses
from sheafed.vectorized.stacked import Stacked
from sheafed.vectorized.stacked_model import SameLayers, StackedModel
from sheafed.vectorized.stacked_optimizer import (
    clip_gradients,
    optimizer_signature,
    optimizer_step,
)


class StackedCohort:
    """The members of a cohort in one round.

    Args:
        same: their models; see `sheafed.vectorized.structure`.
        pilots: of the network.
    """

    def __init__(self, same: SameLayers, pilots: PilotSet) -> None:
        self.agents, self._same = same.agents, same
        self._pilots = pilots
        self._places = {agent: k for k, agent in enumerate(self.agents)}
        self._batches: dict[Agent, Batch] = {}
        self._losses: dict[Agent, Tensor] = {}
        self._encoded: dict[tuple[bool, bytes | None], dict[Agent, Tensor]] = {}
        self._computed: list[tuple[Tensor, list[Tensor]]] = []
        """Losses and latents of all members, with the leaf that each of them was given."""
        self._ready: set[Agent] = set()

    @cached_property
    def _model(self) -> StackedModel:
        return StackedModel(self._same)

    def loss(self, agent: Agent) -> tuple[Batch, Tensor]:
        if not self._batches:
            self._batches = {member: member.next_batch() for member in self.agents}
            batches = list(self._batches.values())
            inputs = Stacked.of([cast(Tensor, batch.inputs) for batch in batches])
            outputs = self._model.outputs_in_training(inputs)
            self._losses = self._leaves(losses(self.agents, outputs, batches))
        if agent not in self._losses:
            raise InputError(
                f"agent {agent.name!r}: its method takes several training steps in one round, and "
                "agents that step together take one; give train(..., vectorize=False)"
            )
        self._model.move_statistics(self._places[agent])
        return self._batches[agent], self._losses.pop(agent)

    def encode_pilots(self, agent: Agent, indices: Tensor | None) -> Tensor:
        learning = torch.is_grad_enabled()
        key = (learning, None if indices is None else indices.numpy().tobytes())
        if key not in self._encoded:
            latents = self._encode(self._pilot_inputs(indices), learning)
            parts = zip(self.agents, latents, strict=True)
            self._encoded[key] = self._leaves(latents) if learning else dict(parts)
        return self._encoded[key][agent]

    def defer(self, agent: Agent) -> None:
        self._ready.add(agent)

    def take_step(self) -> None:
        """Let all gradients go backward and take the steps of the members that are ready."""
        gradients = self._gradients()
        signatures = {optimizer_signature(agent) for agent in self.agents}
        alike = len(signatures) == 1 and None not in signatures
        weights, self._computed = self._model.parameters, []
        for agent in self.agents:
            agent.cohort = None
        if alike and gradients is not None and len(self._ready) == len(self.agents):
            clip_gradients(self.agents, [g for g in gradients if g is not None])
            optimizer_step(self._same, weights, gradients)
            for parameter in chain.from_iterable(self._same.parameters):
                parameter.grad = None
        else:
            self._step_one_by_one(weights)

    def _gradients(self) -> list[Tensor | None] | None:
        """Return the gradients of the stacked weights, with those that members have beside them.

        None if a weight has a gradient in some members only.
        """
        outputs, given = [], []
        for output, leaves in self._computed:
            if any(leaf.grad is not None for leaf in leaves):
                outputs.append(output)
                grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
                given.append(torch.stack(grads))
        torch.autograd.backward(outputs, given)
        found: list[Tensor | None] = []
        for same, weight in zip(self._same.parameters, self._model.parameters, strict=True):
            beside = [parameter.grad for parameter in same]
            known = [part for part in beside if part is not None]
            if weight.grad is not None:
                for part, own in zip(weight.grad, beside, strict=True):
                    if own is not None:
                        part += own
                found.append(weight.grad)
            elif known and len(known) < len(beside):
                return None
            else:
                found.append(torch.stack(known) if known else None)
        return found

    def _step_one_by_one(self, weights: Sequence[Tensor]) -> None:
        """Give each member its gradient, and let its own optimiser take the step."""
        for i, agent in enumerate(self.agents):
            for parameter, weight in zip(agent.parameters, weights, strict=True):
                if weight.grad is not None:  # it has what the member had beside it
                    parameter.grad = weight.grad[i]
            if agent in self._ready:
                with agent.rng_context():
                    agent.apply_gradients()

    def _leaves(self, computed: Tensor) -> dict[Agent, Tensor]:
        leaves = [part.requires_grad_() for part in computed.detach().unbind()]
        self._computed.append((computed, leaves))
        return dict(zip(self.agents, leaves, strict=True))

    def _encode(self, inputs: Stacked, learning: bool) -> Tensor:
        if learning:
            return self._model.encode(inputs).apart()
        # In parts: thousands of images at once would need gigabytes.
        parts = torch.split(inputs.value, ENCODING_BATCH_SIZE, dim=1)
        return torch.cat([self._model.encode(inputs.with_value(x)).apart() for x in parts], dim=1)

    def _pilot_inputs(self, indices: Tensor | None) -> Stacked:
        """Return pilots of every member; those that all share are not copied."""
        given = [self._pilots.of(agent.name) for agent in self.agents]
        shared = all(inputs is given[0] for inputs in given)
        chosen = []
        for agent, inputs in zip(self.agents, given[:1] if shared else given, strict=not shared):
            rows = inputs if indices is None else select_rows(inputs, indices)
            chosen.append(cast(Tensor, agent.prepare(Batch(rows, None)).inputs))
        if shared:
            return Stacked(chosen[0].expand(len(self.agents), *chosen[0].shape), len(self.agents))
        return Stacked.of(chosen)
