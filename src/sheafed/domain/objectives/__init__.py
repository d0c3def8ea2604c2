"""Local objectives: callables of an agent and a batch that give a scalar loss."""

from sheafed.domain.objectives.augmentations import Augmentation
from sheafed.domain.objectives.autoencoding import Autoencoding
from sheafed.domain.objectives.objective import Objective
from sheafed.domain.objectives.probe import Probed
from sheafed.domain.objectives.pseudo_labels import UNLABELLED, PseudoLabels
from sheafed.domain.objectives.simclr import SimCLR
from sheafed.domain.objectives.supervised import cross_entropy, soft_cross_entropy
from sheafed.domain.objectives.vicreg import VICReg

__all__ = [
    "UNLABELLED",
    "Augmentation",
    "Autoencoding",
    "Objective",
    "Probed",
    "PseudoLabels",
    "SimCLR",
    "VICReg",
    "cross_entropy",
    "soft_cross_entropy",
]
