"""VICReg (Bardes, Ponce and LeCun, ICLR 2022): variance, invariance and covariance."""

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
from sheafed.options import Count, NotNegative, options

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

EPSILON = 1e-4
"""Added to a variance under the square root, whose derivative at 0 is not finite."""


def invariance_term(first: Tensor, second: Tensor) -> Tensor:
    r"""Return $\frac{1}{n d} \sum_k \|z_k - z'_k\|^2$ of embeddings `(n, d)`.

    >>> invariance_term(torch.zeros(2, 3), torch.ones(2, 3))
    tensor(1.)
    """
    return (first - second).square().mean()


def variance_term(embeddings: Tensor) -> Tensor:
    r"""Return $\frac1d \sum_j \max(0, 1 - \sqrt{\mathrm{Var}(z^j) + \epsilon})$.

    >>> variance_term(torch.tensor([[-9.0], [9.0]]))
    tensor(0.)
    """
    deviations = (_checked(embeddings).var(0) + EPSILON).sqrt()
    return torch.relu(1 - deviations).mean()


def covariance_term(embeddings: Tensor) -> Tensor:
    r"""Return $\frac1d \sum_{i \neq j} C_{ij}^2$ with $C$ the covariance of the coordinates.

    >>> covariance_term(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    tensor(0.)
    """
    n, d = _checked(embeddings).shape
    centred = embeddings - embeddings.mean(0)
    covariance = centred.mT @ centred / (n - 1)
    return (covariance.square().sum() - covariance.diagonal().square().sum()) / d


@options
class VICRegOptions(ObjectiveOptions):
    r"""Make two augmentations of an input alike, while embeddings vary and decorrelate.

    $\lambda s(Z, Z') + \frac\mu2 (v(Z) + v(Z')) + \nu (c(Z) + c(Z'))$ with the terms above: the
    authors' published code, where $s$ is averaged over coordinates and $v$ over the two
    augmentations, and their weights 25, 25 and 1, divided by 25 so that the loss is of the
    magnitude of others.

    Args:
        widths: of the expander's layers.
        invariance: $\lambda$.
        variance: $\mu$.
        covariance: $\nu$.
        augmentation: a random augmentation of inputs, `Augmentation` or a function of your own.
    """

    name: Literal["vicreg"] = field(default="vicreg", kw_only=True, repr=False)
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (128, 128)
    invariance: NotNegative = 1.0
    variance: NotNegative = 1.0
    covariance: NotNegative = 0.04
    augmentation: AnyAugmentation = Augmentation()

    def build(self, latent: int, inputs: Sequence[int]) -> VICReg:
        return VICReg(models.mlp(self.widths, inputs=(latent,)), self)


class VICReg(nn.Module):
    """The VICReg objective with an expander.

    >>> objective = VICRegOptions(covariance=0.1).build(latent=16, inputs=(1, 8, 8))

    Args:
        expander: from latents `(n, d)` to embeddings, e.g. `sheafed.models.mlp((128, 128),
            inputs=(d,))`. With `nn.Identity()` the latents themselves would have to be invariant
            to the augmentation.
        options: all but `widths`, which are those of the expander that `VICRegOptions` builds.
    """

    def __init__(self, expander: nn.Module, options: VICRegOptions | None = None) -> None:
        super().__init__()
        self.expander = expander
        self.options = options or VICRegOptions()

    def forward(self, agent: Agent, batch: Batch) -> Tensor:
        views = encode_two_views(agent, self.options.augmentation, batch.inputs)
        first, second = (self.expander(latents) for latents in views)
        weights = self.options
        return (
            weights.invariance * invariance_term(first, second)
            + weights.variance * (variance_term(first) + variance_term(second)) / 2
            + weights.covariance * (covariance_term(first) + covariance_term(second))
        )


def _checked(embeddings: Tensor) -> Tensor:
    if embeddings.ndim != 2 or len(embeddings) < 2:
        raise ShapeError(
            f"VICReg needs embeddings (n, d) of at least two inputs, got "
            f"{tuple(embeddings.shape)}; use larger batches, or an expander that gives (n, d)"
        )
    return embeddings
