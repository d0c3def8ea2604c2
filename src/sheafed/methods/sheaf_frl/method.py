r"""Sheaf-FRL: local gradient steps alternate with closed-form Procrustes updates of the maps.

The choices a user makes; what an agent then does is in `sheafed.methods.sheaf_frl.node`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from sheafed.channels import Channel
from sheafed.errors import InputError
from sheafed.methods.consensus import Consensus
from sheafed.methods.latent_codec import Quantisation
from sheafed.methods.node import NodeContext
from sheafed.methods.shared_solver import SharedSolver, Solver
from sheafed.methods.sheaf_frl.distillation import Distillation
from sheafed.methods.sheaf_frl.gaussian_noise import GaussianNoise
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps, MapPolicy
from sheafed.methods.sheaf_frl.node import SheafFRLNode
from sheafed.methods.sheaf_frl.penalty_weight import Constant, DualAscent, PenaltyWeight, WarmUp
from sheafed.methods.whitening import SWBN, ZCA, NoWhitening
from sheafed.options import Count, NotNegative, OneOf, PythonOnly, options
from sheafed.pilots.policies import PilotPolicy


@options
class SheafFRL:
    r"""The method of the paper.

    Args:
        penalty: $\lambda$, or how it develops (`Constant`, `WarmUp`, `DualAscent`).
        privacy: `"standard"` exchanges raw pilot latents, `"strict"` only transported ones.
        maps: when maps are fitted and from what (`MapPolicy`), or `IdentityMaps()`.
        pilots_per_round: how many are drawn anew each round, all if there are fewer, or a policy
            from `sheafed.pilots`.
        whitening: `ZCA()`, `SWBN()`, or `NoWhitening()`.
        distillation: None for the paper's method. `Consensus()`: models learn the classes of pilots
            that neighbours agree on. `Distillation()`: heads learn neighbours' predictions of what
            these transmit.
        exchange_every: rounds from one exchange to the next. Between them nothing is sent and no
            map is fitted, but what arrived last is still used: own latents of the same pilots are
            pulled to it, and its class probabilities are learnt.
        quantisation: how latents cross the wire, `"none"`, `"float16"` or `"int8"` (see
            `sheafed.methods.latent_codec`). Class probabilities are sent as float16 with
            `"int8"`.
        channel: over which latents are transmitted (see `sheafed.channels`); None for a
            perfect one. Class probabilities do not cross it: they are protected, as data are.
        edge_dim: the size of the edge stalks, at most; None for that of the larger latents, the
            paper's (see `sheafed.methods.sheaf_frl.compressed_endpoints`).
        noise: `GaussianNoise(epsilon)` on the white latents that leave, None for exact ones.
        solver: how Procrustes problems are solved; by default once per edge and process.
    """

    name: Literal["sheaf-frl"] = field(default="sheaf-frl", kw_only=True, repr=False)
    penalty: Annotated[
        float | PenaltyWeight, OneOf(NotNegative, Constant, WarmUp, DualAscent, PenaltyWeight)
    ] = 0.1
    privacy: Literal["standard", "strict"] = "standard"
    maps: Annotated[MapPolicy | IdentityMaps, OneOf(MapPolicy, IdentityMaps, default=MapPolicy)] = (
        MapPolicy()
    )
    pilots_per_round: Annotated[int | PilotPolicy, OneOf(Count, PilotPolicy)] = 64
    whitening: Annotated[ZCA | SWBN | NoWhitening, OneOf(ZCA, SWBN, NoWhitening, default=ZCA)] = (
        ZCA()
    )
    distillation: (
        Annotated[Distillation | Consensus, OneOf(Distillation, Consensus, default=Distillation)]
        | None
    ) = None
    exchange_every: Count = 1
    quantisation: Quantisation = "none"
    channel: Channel | None = None
    edge_dim: Count | None = None
    noise: GaussianNoise | None = None
    solver: PythonOnly[Solver] = field(default_factory=SharedSolver, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.privacy == "strict" and isinstance(self.maps, IdentityMaps):
            raise InputError(
                "identity maps transport nothing: under strict privacy they would send the raw "
                "latents; take MapPolicy() or privacy='standard'"
            )
        if self.edge_dim is not None and isinstance(self.maps, IdentityMaps):
            raise InputError("identity maps do not compress; take MapPolicy() or edge_dim=None")

    @property
    def label(self) -> str:
        if self.distillation is None:
            return "Sheaf-FRL"
        agreed = isinstance(self.distillation, Consensus)
        return f"Sheaf-FRL with {'consensus' if agreed else 'distillation'}"

    def node(self, context: NodeContext) -> SheafFRLNode:
        return SheafFRLNode(self, context)
