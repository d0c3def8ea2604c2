"""Autoencoding: latents from which a decoder of the agent's own can restore the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from sheafed.agents.samples import Batch
from sheafed.errors import ShapeError

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def reconstruction_error(restored: Tensor, inputs: Tensor) -> Tensor:
    """Return the mean squared difference of all values of both, `(n, ...)`."""
    if restored.shape != inputs.shape:
        raise ShapeError(
            f"the decoder gave {tuple(restored.shape)} for inputs {tuple(inputs.shape)}; it must "
            "restore their shape"
        )
    return (restored - inputs).square().mean()


class Autoencoding(nn.Module):
    """Restore the inputs from their latents.

    Args:
        decoder: from latents `(n, d)` to inputs, e.g. `sheafed.models.decoder(d, (1, 8, 8))`.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        """Return the error of what is restored."""
        return reconstruction_error(self.decoder(agent.encode(batch.inputs)), batch.inputs)
