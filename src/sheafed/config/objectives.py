"""`objective = "vicreg"`: the objectives that a config can name, with their options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from sheafed import models
from sheafed.agents.objectives import (
    Augmentation,
    Autoencoding,
    Objective,
    PseudoLabels,
    SimCLR,
    VICReg,
    cross_entropy,
)
from sheafed.config.table import Table
from sheafed.options import Count, Fraction, NotNegative, Positive

Widths = Annotated[tuple[Count, ...], Field(min_length=1)]


class AugmentationTable(Table):
    """What changes an image from one view of it to the other; see `Augmentation`."""

    shift: Fraction = 0.125
    rotation: Annotated[float, Field(ge=0, le=180)] = 10.0
    erasing: Fraction = 0.25
    noise: NotNegative = 0.05

    @property
    def move(self) -> bool:
        """Whether they need images: noise alone suits any inputs."""
        return bool(self.shift or self.rotation or self.erasing)

    def build(self) -> Augmentation:
        """Return the augmentation."""
        return Augmentation(**self.model_dump())


class Goal(Table, ABC):
    """What the tables of objectives share."""

    needs_labels: ClassVar[bool] = False
    name: str

    @property
    def needs_images(self) -> bool:
        """Whether inputs are shifted, turned or erased in part."""
        augmentation = getattr(self, "augmentation", None)
        return augmentation is not None and augmentation.move

    @abstractmethod
    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective of an agent with latents and inputs of these sizes.

        Torch's global stream draws its weights, if it has any.
        """


class CrossEntropyTable(Goal):
    """Learn from labels."""

    needs_labels = True
    name: Literal["cross-entropy"] = "cross-entropy"

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective."""
        return cross_entropy


class PseudoLabelsTable(Goal):
    """Learn from few labels and the head's own guesses."""

    needs_labels = True
    name: Literal["pseudo-labels"] = "pseudo-labels"
    labelled: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The fraction of training labels that the agent knows; at least one of each class it has."""
    confidence: Fraction = 0.95
    weight: NotNegative = 1.0
    augmentation: AugmentationTable = AugmentationTable(rotation=15.0, noise=0.1)
    """The strong ones; the weak are only shifted."""

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective."""
        weak = Augmentation(self.augmentation.shift, rotation=0, erasing=0, noise=0)
        return PseudoLabels(self.confidence, self.weight, weak, self.augmentation.build())


class AutoencodingTable(Goal):
    """Restore the inputs."""

    name: Literal["autoencoding"] = "autoencoding"
    widths: tuple[Count, ...] = (64,)
    """Hidden widths of the decoder."""

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective."""
        return Autoencoding(models.decoder(latent, inputs, self.widths))


class VICRegTable(Goal):
    """Variance, invariance and covariance of two views."""

    name: Literal["vicreg"] = "vicreg"
    widths: Widths = (128, 128)
    """Of the expander's layers."""
    invariance: NotNegative = 1.0
    variance: NotNegative = 1.0
    covariance: NotNegative = 0.04
    augmentation: AugmentationTable = AugmentationTable()

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective."""
        return VICReg(
            models.mlp(self.widths, inputs=(latent,)),
            self.augmentation.build(),
            invariance=self.invariance,
            variance=self.variance,
            covariance=self.covariance,
        )


class SimCLRTable(Goal):
    """Contrast of two views."""

    name: Literal["simclr"] = "simclr"
    widths: Widths = (64, 32)
    """Of the projector's layers."""
    temperature: Positive = 0.5
    augmentation: AugmentationTable = AugmentationTable()

    def build(self, latent: int, inputs: Sequence[int]) -> Objective:
        """Return the objective."""
        projector = models.mlp(self.widths, inputs=(latent,))
        return SimCLR(projector, self.augmentation.build(), temperature=self.temperature)


OBJECTIVES: dict[str, type[Goal]] = {
    "cross-entropy": CrossEntropyTable,
    "pseudo-labels": PseudoLabelsTable,
    "autoencoding": AutoencodingTable,
    "vicreg": VICRegTable,
    "simclr": SimCLRTable,
}

LABEL_FREE = tuple(name for name, table in OBJECTIVES.items() if not table.needs_labels)


def _as_table(given: Any) -> Any:
    """Let a name stand for a table with the defaults."""
    return {"name": given} if isinstance(given, str) else given


ObjectiveTable = Annotated[
    Annotated[
        CrossEntropyTable | PseudoLabelsTable | AutoencodingTable | VICRegTable | SimCLRTable,
        Field(discriminator="name"),
    ],
    BeforeValidator(_as_table),
]
"""A name, or a table with a name and options."""
