"""Autoencoding: latents from which the agent's own decoder reconstructs the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from sheafed import models
from sheafed.agents.objectives.objective import ObjectiveOptions
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, ShapeError
from sheafed.options import Count, options
from sheafed.tensor_tree import structure

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def reconstruction_error(reconstructed: Tensor, inputs: Tensor) -> Tensor:
    """Return the mean squared error over all values of both, `(n, ...)`.

    >>> import torch
    >>> reconstruction_error(torch.zeros(2, 3), torch.full((2, 3), 2.0))
    tensor(4.)
    """
    if reconstructed.shape != inputs.shape:
        raise ShapeError(
            f"the decoder gave {tuple(reconstructed.shape)} for inputs {tuple(inputs.shape)}; its "
            "output must have their shape"
        )
    return (reconstructed - inputs).square().mean()


@options
class AutoencodingOptions(ObjectiveOptions):
    """Reconstruct the inputs from their latents.

    Args:
        widths: of the decoder's hidden layers.
    """

    name: Literal["autoencoding"] = field(default="autoencoding", kw_only=True, repr=False)
    widths: tuple[Count, ...] = (64,)

    def build(self, latent: int, inputs: Sequence[int]) -> Autoencoding:
        return Autoencoding(models.decoder(latent, inputs, self.widths))


class Autoencoding(nn.Module):
    """Reconstruct the inputs from their latents.

    >>> from sheafed.models import decoder
    >>> objective = Autoencoding(decoder(latent=16, inputs=(1, 8, 8)))

    Args:
        decoder: from latents `(n, d)` to inputs, e.g. `sheafed.models.decoder(d, (1, 8, 8))`.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        if not isinstance(batch.inputs, Tensor):
            raise InputError(
                f"agent {agent.name!r}: autoencoding reconstructs inputs of one tensor, got "
                f"{structure(batch.inputs)}; give an objective of your own"
            )
        return reconstruction_error(self.decoder(agent.encode(batch.inputs)), batch.inputs)
