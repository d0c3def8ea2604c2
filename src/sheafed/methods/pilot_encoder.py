"""The latents of an agent's pilots."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.agents.encoding_memory import digest_weights
from sheafed.errors import NonFiniteError
from sheafed.pilots.pilot_set import PilotSet
from sheafed.tensor_tree import TensorTree, count_non_finite, select_rows, tree_length


class PilotEncoder:
    """Encodes the pilots of one agent deterministically; differentiable in the encoder.

    What has been encoded with the same weights is not encoded again, e.g. for maps that are fitted
    several times after training.

    Args:
        agent: a frozen one encodes its pilots only once.
        pilots: those of the network.
    """

    def __init__(self, agent: Agent, pilots: PilotSet) -> None:
        self._agent = agent
        self._pilots = pilots
        self._frozen: Tensor | None = None
        self._last: tuple[str, Tensor] | None = None
        """The latents of all pilots, and the weights that gave them."""

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
        if self._frozen is None:
            with torch.no_grad():
                self._frozen = encode_pilots(self._agent, inputs, round)
        return self._frozen if indices is None else select_rows(self._frozen, indices)

    def _all(self, inputs: TensorTree, round: int | None) -> Tensor:
        weights = digest_weights(self._agent.encoder)
        if self._last is None or self._last[0] != weights:
            self._last = weights, encode_pilots(self._agent, inputs, round)
        return self._last[1]

    def in_training(self, indices: Tensor, round: int) -> Tensor:
        """Return the latents of pilots as a training step has them, e.g. with dropout."""
        if self._agent.frozen:
            return self(indices, round)  # they are encoded only once
        return self._agent.encode(select_rows(self._pilots.of(self._agent.name), indices))


def encode_pilots(agent: Agent, inputs: TensorTree, round: int | None) -> Tensor:
    with agent.inference():
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
