"""Local objectives: callables of an agent and a batch that give a scalar loss."""

from sheafed.agents.objectives.augmentations import Augmentation
from sheafed.agents.objectives.autoencoding import Autoencoding
from sheafed.agents.objectives.objective import Objective
from sheafed.agents.objectives.online_probe import OnlineProbe
from sheafed.agents.objectives.pseudo_labels import UNLABELLED, PseudoLabels
from sheafed.agents.objectives.simclr import SimCLR
from sheafed.agents.objectives.supervised import cross_entropy, soft_cross_entropy
from sheafed.agents.objectives.vicreg import VICReg

__all__ = [
    "UNLABELLED",
    "Augmentation",
    "Autoencoding",
    "Objective",
    "OnlineProbe",
    "PseudoLabels",
    "SimCLR",
    "VICReg",
    "cross_entropy",
    "soft_cross_entropy",
]
