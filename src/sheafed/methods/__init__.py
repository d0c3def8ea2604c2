"""Sheaf-FRL and the methods it is compared with: one file each, written for one agent."""

from sheafed.methods.build_node import build_node
from sheafed.methods.comfed import ComFed
from sheafed.methods.consensus import Consensus
from sheafed.methods.consensus_distillation import ConsensusDistillation
from sheafed.methods.fedmuscle import FedMuscle
from sheafed.methods.fedproto import FedProto
from sheafed.methods.node import ROUND, Method, Node, NodeContext
from sheafed.methods.noncooperative import NonCooperative
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.methods.sheaf_fmtl.method import SheafFMTL
from sheafed.methods.sheaf_frl.distillation import Distillation
from sheafed.methods.sheaf_frl.gaussian_noise import GaussianNoise
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps, MapPolicy
from sheafed.methods.sheaf_frl.method import SheafFRL
from sheafed.methods.sheaf_frl.penalty_weight import Constant, DualAscent, WarmUp
from sheafed.methods.whitening import SWBN, ZCA, NoWhitening

__all__ = [
    "ROUND",
    "SWBN",
    "ZCA",
    "ComFed",
    "Consensus",
    "ConsensusDistillation",
    "Constant",
    "Distillation",
    "DualAscent",
    "FedMuscle",
    "FedProto",
    "GaussianNoise",
    "IdentityMaps",
    "MapPolicy",
    "Method",
    "NoWhitening",
    "Node",
    "NodeContext",
    "NonCooperative",
    "PostHocNode",
    "SheafFMTL",
    "SheafFRL",
    "WarmUp",
    "build_node",
]
