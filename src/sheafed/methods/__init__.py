"""Sheaf-FRL and the methods it is compared with: one file each, written for one agent."""

from sheafed.methods.maps import IdentityMaps, MapPolicy
from sheafed.methods.node import Method, Node, Setting
from sheafed.methods.noncooperative import NonCooperative
from sheafed.methods.penalty import Constant, DualAscent, WarmUp
from sheafed.methods.sheaf_frl import Beliefs, SheafFRL
from sheafed.methods.whitenings import SWBN, ZCA, NoWhitening

__all__ = [
    "SWBN",
    "ZCA",
    "Beliefs",
    "Constant",
    "DualAscent",
    "IdentityMaps",
    "MapPolicy",
    "Method",
    "NoWhitening",
    "Node",
    "NonCooperative",
    "Setting",
    "SheafFRL",
    "WarmUp",
]
