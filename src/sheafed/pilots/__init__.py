"""Pilots: the inputs that all agents share, and which of them a round uses."""

from sheafed.pilots.pilot_set import PilotSet
from sheafed.pilots.policies import (
    Dynamic,
    EveryPilot,
    PerClass,
    PerCluster,
    PilotPolicy,
    Prototypes,
    Selection,
    Uniform,
)

__all__ = [
    "Dynamic",
    "EveryPilot",
    "PerClass",
    "PerCluster",
    "PilotPolicy",
    "PilotSet",
    "Prototypes",
    "Selection",
    "Uniform",
]
