"""The types of objectives and of their options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from sheafed.agents.objectives.augmentations import Augmentation
from sheafed.agents.samples import Batch

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

Objective = Callable[["Agent", Batch], Tensor]
"""From an agent and a batch of its training data to a scalar loss. It runs within the agent's
`rng_context`; the parameters of a module are trained with the agent's."""


class ObjectiveOptions(ABC):
    """The options of an objective, from which an agent's can be built."""

    name: str
    needs_labels: ClassVar[bool] = False

    @property
    def augmentations(self) -> dict[str, Augmentation]:
        """By the name of the option."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Augmentation)}

    @abstractmethod
    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective of an agent with latents and inputs of these sizes.

        Torch's global stream draws its weights, if it has any.
        """
