"""Sheaf-FRL and the methods it is compared with: one file each, written for one agent."""

from sheafed.methods.beliefs import Beliefs
from sheafed.methods.comfed import ComFed
from sheafed.methods.fedmuscle import FedMuscle
from sheafed.methods.fedproto import FedProto
from sheafed.methods.maps import IdentityMaps, MapPolicy
from sheafed.methods.node import Method, Node, Setting
from sheafed.methods.noise import GaussianNoise
from sheafed.methods.noncooperative import NonCooperative
from sheafed.methods.penalty import Constant, DualAscent, WarmUp
from sheafed.methods.sheaf_fmtl import SheafFMTL
from sheafed.methods.sheaf_frl import SheafFRL
from sheafed.methods.whitenings import SWBN, ZCA, NoWhitening

__all__ = [
    "SWBN",
    "ZCA",
    "Beliefs",
    "ComFed",
    "Constant",
    "DualAscent",
    "FedMuscle",
    "FedProto",
    "GaussianNoise",
    "IdentityMaps",
    "MapPolicy",
    "Method",
    "NoWhitening",
    "Node",
    "NonCooperative",
    "Setting",
    "SheafFMTL",
    "SheafFRL",
    "WarmUp",
]
