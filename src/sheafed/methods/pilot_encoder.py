"""The latents of an agent's pilots."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.agents.encoding_memory import Changes, count_changes, digest_weights
from sheafed.errors import NonFiniteError
from sheafed.pilots.pilot_set import PilotSet
from sheafed.tensor_tree import TensorTree, count_non_finite, select_rows, tree_length


class PilotEncoder:
    """Encodes the pilots of one agent deterministically; differentiable in the encoder.

    What has been encoded with the same weights is not encoded again within one training, e.g. for
    maps that are fitted several times at its end. What a callback changes beside the weights, e.g.
    an attribute of the encoder, needs `Agent.forget_encodings`, as do weights of a frozen encoder
    that are changed by `.data`.

    Args:
        agent: a frozen one encodes its pilots only once in a training.
        pilots: those of the network.
    """

    def __init__(self, agent: Agent, pilots: PilotSet) -> None:
        self._agent = agent
        self._pilots = pilots
        self._last: tuple[tuple[int, str | Changes], Tensor] | None = None
        """The latents of all pilots, and the state that gave them."""

    def __call__(self, indices: Tensor | None = None, round: int | None = None) -> Tensor:
        """Return the latents `(K, d)` of all pilots or of some; errors name the round."""
        inputs = self._pilots.of(self._agent.name)
        if not self._agent.frozen:
            if self._agent.cohort is not None:
                latents = self._agent.cohort.encode_pilots(self._agent, indices)
                return _checked(self._agent, latents, inputs, round)
            if indices is None and not torch.is_grad_enabled():
                return self._all(inputs, round)
            chosen = inputs if indices is None else select_rows(inputs, indices)
            return encode_pilots(self._agent, chosen, round)
        latents = self._all(inputs, round)
        return latents if indices is None else select_rows(latents, indices)

    def _all(self, inputs: TensorTree, round: int | None) -> Tensor:
        agent, encoder = self._agent, self._agent.encoder
        # Optimisers, whose changes are not counted, leave a frozen encoder alone; reading all of
        # its weights in every round would take long.
        weights = (
            count_changes(chain(encoder.parameters(), encoder.buffers()))
            if agent.frozen
            else digest_weights(encoder)
        )
        state = agent.times_forgotten, weights
        if self._last is None or self._last[0] != state:
            with torch.no_grad():
                self._last = state, encode_pilots(agent, inputs, round)
        return self._last[1]

    def in_training(self, indices: Tensor, round: int) -> Tensor:
        """Return the latents of pilots as a training step has them, e.g. with dropout."""
        if self._agent.frozen:
            return self(indices, round)  # they are encoded only once
        return self._agent.encode(select_rows(self._pilots.of(self._agent.name), indices))


def encode_pilots(agent: Agent, inputs: TensorTree, round: int | None) -> Tensor:
    """Return the latents of pilots in evaluation mode; repeatable if the encoder draws any."""
    with agent.inference(), agent.encoding_stream("pilots"):
        if torch.is_grad_enabled():
            latents = agent.encode(inputs)
        else:  # in parts: thousands of images at once would need gigabytes
            starts = range(0, tree_length(inputs), ENCODING_BATCH_SIZE)
            parts = (select_rows(inputs, slice(a, a + ENCODING_BATCH_SIZE)) for a in starts)
            latents = torch.cat([agent.encode(part) for part in parts])
    return _checked(agent, latents, inputs, round)


def check_pilot_latents(agent: Agent, latents: Tensor, pilots: PilotSet, round: int) -> None:
    """Raise if the latents of an agent's pilots are not finite."""
    _checked(agent, latents, pilots.of(agent.name), round)


def _checked(agent: Agent, latents: Tensor, inputs: TensorTree, round: int | None) -> Tensor:
    """Return the latents of pilots; raise if they are not finite."""
    if not bool(torch.isfinite(latents).all()):
        when = "" if round is None else f", round {round}"
        bad, total = count_non_finite(inputs)
        raise NonFiniteError(
            f"agent {agent.name!r}{when}: the encoder gives non-finite latents for the pilots, "
            f"whose inputs hold {bad} non-finite of {total} values; "
            + ("clean the pilots" if bad else "lower the learning rate or clip the gradient")
        )
    return latents
