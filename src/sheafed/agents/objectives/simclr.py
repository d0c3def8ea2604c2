"""SimCLR (Chen et al., ICML 2020): contrast two augmentations of an input with all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.augmentations import Augment, Augmentation, encode_two_views
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, ShapeError

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


class SimCLR(nn.Module):
    """Contrast two augmentations of an input with those of the other inputs of the batch.

    >>> from sheafed.models import mlp
    >>> objective = SimCLR(mlp((64, 32), inputs=(16,)))  # for latents of 16

    Args:
        projector: from latents `(n, d)` to embeddings, e.g. `sheafed.models.mlp((64, 32),
            inputs=(d,))`.
        augment: a random augmentation of inputs; `Augmentation()` by default.
        temperature: the smaller, the more the most similar others count.
    """

    def __init__(
        self, projector: nn.Module, augment: Augment | None = None, *, temperature: float = 0.5
    ) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise InputError(f"temperature must be positive, got {temperature}")
        self.projector = projector
        self.augment = augment or Augmentation()
        self.temperature = temperature

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        views = encode_two_views(agent, self.augment, batch.inputs)
        first, second = (self.projector(latents) for latents in views)
        return nt_xent(first, second, self.temperature)
