"""Network sheaves: restriction maps, sections, holonomy, latent links and routing."""

from sheafed.sheaf.holonomy import Holonomy
from sheafed.sheaf.latent_link import LatentLink
from sheafed.sheaf.network_sheaf import Cochain, NetworkSheaf
from sheafed.sheaf.routing import lowest_loss_path, path_loss

__all__ = [
    "Cochain",
    "Holonomy",
    "LatentLink",
    "NetworkSheaf",
    "lowest_loss_path",
    "path_loss",
]
