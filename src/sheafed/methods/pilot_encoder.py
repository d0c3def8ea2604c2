"""The latents of an agent's pilots."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.agents.agent import ENCODING_BATCH_SIZE, Agent
from sheafed.errors import NonFiniteError


class PilotEncoder:
    """Encodes the pilots of one agent deterministically; differentiable in the encoder.

    Args:
        agent: a frozen one encodes its pilots only once.
        inputs: all pilots as the agent sees them.
    """

    def __init__(self, agent: Agent, inputs: Tensor) -> None:
        self._agent = agent
        self._inputs = inputs
        self._frozen: Tensor | None = None

    def __call__(self, indices: Tensor | None = None, round: int | None = None) -> Tensor:
        """Return the latents `(K, d)` of all pilots or of some; errors name the round."""
        inputs = self._inputs
        if not self._agent.frozen:
            return encode_pilots(self._agent, inputs if indices is None else inputs[indices], round)
        if self._frozen is None:
            with torch.no_grad():
                self._frozen = encode_pilots(self._agent, inputs, round)
        return self._frozen if indices is None else self._frozen[indices]


def encode_pilots(agent: Agent, inputs: Tensor, round: int | None) -> Tensor:
    with agent.inference():
        if torch.is_grad_enabled():
            latents = agent.encode(inputs)
        else:  # in parts: thousands of images at once would need gigabytes
            latents = torch.cat([agent.encode(x) for x in torch.split(inputs, ENCODING_BATCH_SIZE)])
    if not bool(torch.isfinite(latents).all()):
        when = "" if round is None else f", round {round}"
        bad = int((~torch.isfinite(inputs)).sum())
        raise NonFiniteError(
            f"agent {agent.name!r}{when}: the encoder gives non-finite latents for the pilots, "
            f"whose inputs hold {bad} non-finite of {inputs.numel()} values; "
            + ("clean the pilots" if bad else "lower the learning rate or clip the gradient")
        )
    return latents
