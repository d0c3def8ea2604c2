"""Network sheaves: restriction maps, sections, holonomy and routing."""

from sheafed.sheaf.holonomy import Holonomy
from sheafed.sheaf.network_sheaf import NetworkSheaf

__all__ = ["Holonomy", "NetworkSheaf"]
