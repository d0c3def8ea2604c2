"""Decentralised representation learning for agents that share neither data, model nor latents."""

from importlib.metadata import version

from sheafed.domain.agent import Agent
from sheafed.domain.alignment import Alignment, AlignmentReport, align
from sheafed.domain.pilot_set import PilotSet
from sheafed.domain.sheaf import NetworkSheaf
from sheafed.methods import Beliefs, MapPolicy, NonCooperative, SheafFRL
from sheafed.runtime import Run, train

__version__ = version("sheafed")
__all__ = [
    "Agent",
    "Alignment",
    "AlignmentReport",
    "Beliefs",
    "MapPolicy",
    "NetworkSheaf",
    "NonCooperative",
    "PilotSet",
    "Run",
    "SheafFRL",
    "align",
    "train",
]
