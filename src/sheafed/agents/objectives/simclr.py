"""SimCLR (Chen et al., ICML 2020): contrast two augmentations of an input with all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sheafed import models
from sheafed.agents.objectives.augmentations import (
    AnyAugmentation,
    Augmentation,
    encode_two_views,
)
from sheafed.agents.objectives.objective import ObjectiveOptions
from sheafed.agents.samples import Batch
from sheafed.errors import ShapeError
from sheafed.options import Count, Positive, options

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    r"""Return the normalised, temperature-scaled cross-entropy of embeddings `(n, d)`.

    The mean over all 2n embeddings $z_k$ with partners $z_{p(k)}$, the other augmentation of the
    same input, of
    $-\log \frac{\exp(\cos(z_k, z_{p(k)}) / \tau)}{\sum_{l \neq k} \exp(\cos(z_k, z_l) / \tau)}$.

    >>> views = torch.eye(4)
    >>> bool(nt_xent(views, views, temperature=0.1) < nt_xent(views, views.flip(0), 0.1))
    True
    """
    n = len(first)
    if n < 2:
        raise ShapeError(
            f"SimCLR needs embeddings of at least two inputs, got {n}; use larger batches"
        )
    directions = nn.functional.normalize(torch.cat([first, second]), dim=1)
    scores = directions @ directions.mT / temperature
    others = scores.masked_fill(
        torch.eye(2 * n, dtype=torch.bool, device=scores.device), -torch.inf
    )
    partners = torch.arange(2 * n, device=scores.device).roll(n)
    return nn.functional.cross_entropy(others, partners)


@options
class SimCLROptions(ObjectiveOptions):
    """Contrast two augmentations of an input with those of the other inputs of the batch.

    Args:
        widths: of the projector's layers.
        temperature: the smaller, the more the most similar others count.
        augmentation: a random augmentation of inputs, `Augmentation` or a function of your own.
    """

    name: Literal["simclr"] = field(default="simclr", kw_only=True, repr=False)
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (64, 32)
    temperature: Positive = 0.5
    augmentation: AnyAugmentation = Augmentation()

    def build(self, latent: int, inputs: Sequence[int]) -> SimCLR:
        return SimCLR(models.mlp(self.widths, inputs=(latent,)), self)


class SimCLR(nn.Module):
    """The SimCLR objective with a projector.

    >>> objective = SimCLROptions(temperature=0.2).build(latent=16, inputs=(1, 8, 8))

    Args:
        projector: from latents `(n, d)` to embeddings, e.g. `sheafed.models.mlp((64, 32),
            inputs=(d,))`.
        options: all but `widths`, which are those of the projector that `SimCLROptions` builds.
    """

    def __init__(self, projector: nn.Module, options: SimCLROptions | None = None) -> None:
        super().__init__()
        self.projector = projector
        self.options = options or SimCLROptions()

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        views = encode_two_views(agent, self.options.augmentation, batch.inputs)
        first, second = (self.projector(latents) for latents in views)
        return nt_xent(first, second, self.options.temperature)
