"""Local objectives: functions of an agent and a batch that return a scalar loss."""

from sheafed.agents.objectives.augmentations import Augmentation
from sheafed.agents.objectives.autoencoding import (
    Autoencoding,
    AutoencodingOptions,
    reconstruction_error,
)
from sheafed.agents.objectives.objective import Objective, ObjectiveOptions
from sheafed.agents.objectives.online_probe import OnlineProbe
from sheafed.agents.objectives.pseudo_labels import (
    UNLABELLED,
    PseudoLabels,
    hide_labels,
    pseudo_label_loss,
)
from sheafed.agents.objectives.regression import mean_squared_error
from sheafed.agents.objectives.simclr import SimCLR, SimCLROptions, nt_xent
from sheafed.agents.objectives.supervised import (
    CrossEntropyOptions,
    cross_entropy,
    soft_cross_entropy,
)
from sheafed.agents.objectives.vicreg import (
    VICReg,
    VICRegOptions,
    covariance_term,
    invariance_term,
    variance_term,
)

__all__ = [
    "UNLABELLED",
    "Augmentation",
    "Autoencoding",
    "AutoencodingOptions",
    "CrossEntropyOptions",
    "Objective",
    "ObjectiveOptions",
    "OnlineProbe",
    "PseudoLabels",
    "SimCLR",
    "SimCLROptions",
    "VICReg",
    "VICRegOptions",
    "covariance_term",
    "cross_entropy",
    "hide_labels",
    "invariance_term",
    "mean_squared_error",
    "nt_xent",
    "pseudo_label_loss",
    "reconstruction_error",
    "soft_cross_entropy",
    "variance_term",
]
