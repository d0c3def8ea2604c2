"""Agents of one structure that take a round together.

What members ask for one by one is computed for all when the first of them asks, and each is given
its own part as a leaf of the autograd graph. What a method makes of that part, e.g. a penalty
beside the loss, goes backward as usual, up to the leaf. A method may also compute for all members
itself, from their losses and latents in one tensor each. When all members are ready for their
optimiser step, everything goes backward through the stacked model, and all steps are taken at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.agents.samples import Batch
from sheafed.errors import InputError
from sheafed.pilots.pilot_set import PilotSet
from sheafed.tensor_tree import select_rows
from sheafed.vectorized.batches import StackedBatch, next_batches
from sheafed.vectorized.objectives import losses
from sheafed.vectorized.stacked import Stacked
from sheafed.vectorized.stacked_layers import Members
from sheafed.vectorized.stacked_model import SameModels, StackedModel
from sheafed.vectorized.stacked_optimizer import clip_gradients, optimizer_step, switches


class OwnPass(NamedTuple):
    """What members make of their next batches."""

    members: list[int]
    """By position."""
    batch: StackedBatch
    latents: Stacked
    losses: Tensor
    """Their objectives, `(members,)`."""


class StackedCohort:
    """The members of a cohort in one round.

    Args:
        same: their models; see `sheafed.vectorized.structure`.
        pilots: of the network.
    """

    def __init__(self, same: SameModels, pilots: PilotSet) -> None:
        self.agents, self.same = same.agents, same
        self._pilots = pilots
        self._places = {agent: k for k, agent in enumerate(self.agents)}
        self._batch: StackedBatch | None = None
        self._losses: dict[Agent, Tensor] = {}
        self._encoded: dict[tuple[bool, bytes | None], Tensor] = {}
        self._parts: dict[tuple[bool, bytes | None], dict[Agent, Tensor]] = {}
        self._computed: list[tuple[Tensor, list[Tensor]]] = []
        """Losses and latents of all members, with the leaf that each of them was given."""
        self._totals: list[Tensor] = []
        """Losses of all members that go backward as they are."""
        self._ready: set[Agent] = set()
        self.kept: dict[str, Tensor] = {}
        """What a method keeps from sending to receiving."""

    @cached_property
    def model(self) -> StackedModel:
        return StackedModel(self.same)

    # What members ask for one by one

    def loss(self, agent: Agent) -> tuple[Batch, Tensor]:
        if self._batch is None:
            self._batch = next_batches(self.agents)
            self._losses = self._leaves(self._own_pass(range(len(self.agents)), self._batch).losses)
        if agent not in self._losses:
            raise InputError(
                f"agent {agent.name!r}: its method takes several training steps in one round, and "
                "agents that step together take one; give train(..., vectorize=False)"
            )
        place = self._places[agent]
        self.model.write_statistics_of(place)
        return self._batch.of(place), self._losses.pop(agent)

    def encode_pilots(self, agent: Agent, indices: Tensor | None) -> Tensor:
        learning = torch.is_grad_enabled()
        key = _key(learning, indices)
        if key not in self._parts:
            latents = self.encode_all_pilots(indices)
            parts = zip(self.agents, latents, strict=True)
            self._parts[key] = self._leaves(latents) if learning else dict(parts)
        return self._parts[key][agent]

    def defer(self, agent: Agent) -> None:
        self._ready.add(agent)

    # What a method computes for all members

    def own_pass(self) -> OwnPass:
        """Clear all gradients and compute the objectives of all members on their next batches."""
        (found,) = self.own_passes([sys.maxsize] * len(self.agents))
        return found

    def own_passes(self, counts: Sequence[int]) -> list[OwnPass]:
        """Do what `own_pass` does, on the first samples of each batch, one pass for each count.

        Args:
            counts: how many samples, by member.
        """
        for parameter in chain.from_iterable(self.same.parameters):
            parameter.grad = None
        batch, found = next_batches(self.agents), []
        for count in sorted(set(counts)):
            members = [k for k, own in enumerate(counts) if own == count]
            found.append(self._own_pass(members, batch.first(count, members)))
        self.model.write_statistics()
        return found

    def encode_all_pilots(self, indices: Tensor | None) -> Tensor:
        """Return the latents `(agents, K, d)` of pilots, all or some, in evaluation mode."""
        learning = torch.is_grad_enabled()
        key = _key(learning, indices)
        if key not in self._encoded:
            self._encoded[key] = self._encode(self._pilot_inputs(indices), learning)
        return self._encoded[key]

    def pilot_inputs(self, rows: Sequence[Tensor], members: Members = None) -> Stacked:
        """Return as many pilots for every member, each its own rows, as models take them."""
        agents = self.agents if members is None else [self.agents[m] for m in members]
        given = [self._pilots.of(agent.name) for agent in agents]
        if all(inputs is given[0] for inputs in given) and isinstance(given[0], Tensor):
            chosen = select_rows(given[0], torch.cat(list(rows)))
            inputs = cast(Tensor, agents[0].prepare(Batch(chosen, None)).inputs)
            return Stacked(inputs.reshape(len(agents), -1, *inputs.shape[1:]), len(agents))
        parts = zip(agents, given, rows, strict=True)
        return Stacked.of([a.prepare(Batch(select_rows(x, r), None)).inputs for a, x, r in parts])

    def train_on(self, totals: Tensor) -> None:
        """Let losses `(agents,)`, one of every member, go backward when the steps are taken."""
        self._totals.append(totals)
        self._ready.update(self.agents)

    def take_step(self) -> None:
        """Let all gradients go backward and take the steps of the members that are ready."""
        gradients = self._gradients()
        found = {switches(agent.optimizer) for agent in self.agents}
        alike = len(found) == 1 and None not in found
        weights, self._computed, self._totals = self.model.parameters, [], []
        for agent in self.agents:
            agent.cohort = None
        if alike and gradients is not None and len(self._ready) == len(self.agents):
            clip_gradients(self.agents, [g for g in gradients if g is not None])
            own = self.same.parameters
            optimizer_step([agent.optimizer for agent in self.agents], own, weights, gradients)
            for parameter in chain.from_iterable(own):
                parameter.grad = None
            for agent in self.agents:
                agent.count_step()
        else:
            self._step_one_by_one(weights)

    def _gradients(self) -> list[Tensor | None] | None:
        """Return the gradients of the stacked weights, with those that members have beside them.

        None if a weight has a gradient in some members only.
        """
        outputs = list(self._totals)
        given = [torch.ones_like(total) for total in self._totals]
        for output, leaves in self._computed:
            if any(leaf.grad is not None for leaf in leaves):
                outputs.append(output)
                grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
                given.append(torch.stack(grads))
        torch.autograd.backward(outputs, given)
        found: list[Tensor | None] = []
        weights = self.model.parameters
        for same, weight in zip(self.same.parameters, weights, strict=True):
            beside = [parameter.grad for parameter in same]
            known = [part for part in beside if part is not None]
            if weight.grad is not None:
                if known:
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

    def _own_pass(self, members: Sequence[int], batch: StackedBatch) -> OwnPass:
        latents = self.model.encode_in_training(batch.inputs, members)
        outputs = self.model.apply_heads_in_training(latents, batch.inputs, members)
        agents = [self.agents[k] for k in members]
        return OwnPass(list(members), batch, latents, losses(agents, outputs, batch))

    def _encode(self, inputs: Stacked, learning: bool) -> Tensor:
        if learning:
            return self.model.encode(inputs).apart()
        # In parts: thousands of images at once would need gigabytes.
        parts = torch.split(inputs.value, ENCODING_BATCH_SIZE, dim=1)
        return torch.cat([self.model.encode(inputs.with_value(x)).apart() for x in parts], dim=1)

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


def _key(learning: bool, indices: Tensor | None) -> tuple[bool, bytes | None]:
    return learning, None if indices is None else indices.numpy().tobytes()
