"""Network sheaves: restriction maps, sections, holonomy and routing."""

from sheafed.sheaf.holonomy import Holonomy
from sheafed.sheaf.latent_link import LatentLink
from sheafed.sheaf.network_sheaf import NetworkSheaf

__all__ = ["Holonomy", "LatentLink", "NetworkSheaf"]
