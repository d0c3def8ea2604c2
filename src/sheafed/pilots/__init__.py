"""Pilots: the inputs that all agents share, and which of them a round uses."""

from sheafed.pilots.clustering import kmeans
from sheafed.pilots.pilot_set import PilotSet
from sheafed.pilots.policies import (
    AllPilots,
    DynamicPilots,
    PilotPolicy,
    PrototypePilots,
    StratifiedPilots,
    UniformPilots,
)
from sheafed.pilots.selection import Selection

__all__ = [
    "AllPilots",
    "DynamicPilots",
    "PilotPolicy",
    "PilotSet",
    "PrototypePilots",
    "Selection",
    "StratifiedPilots",
    "UniformPilots",
    "kmeans",
]
