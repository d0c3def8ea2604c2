"""Decentralised representation learning for agents that share neither data, model nor latents."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent
    from sheafed.alignment import Alignment, AlignmentReport, align
    from sheafed.config.loading import load
    from sheafed.methods import (
        Consensus,
        ConsensusDistillation,
        Distillation,
        MapPolicy,
        NonCooperative,
        SheafFRL,
    )
    from sheafed.pilots.pilot_set import PilotSet
    from sheafed.sheaf.network_sheaf import NetworkSheaf
    from sheafed.training import Network, RunHistory
    from sheafed.training.train import train
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__version__ = version("sheafed")
__all__ = [
    "Agent",
    "Alignment",
    "AlignmentReport",
    "Consensus",
    "ConsensusDistillation",
    "Distillation",
    "MapPolicy",
    "Network",
    "NetworkSheaf",
    "NonCooperative",
    "PilotSet",
    "RunHistory",
    "SheafFRL",
    "align",
    "load",
    "train",
]
