"""Decentralised representation learning for agents that share neither data, model nor latents."""

from importlib.metadata import version

from sheafed.domain.alignment import Alignment, AlignmentReport, align
from sheafed.domain.sheaf import NetworkSheaf

__version__ = version("sheafed")
__all__ = ["Alignment", "AlignmentReport", "NetworkSheaf", "align"]
