"""Which end of an edge a choice of Sheaf-FRL needs, and whether pilots can determine its map."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from sheafed.domain.graphs import Edge
from sheafed.domain.pilots import PilotPolicy
from sheafed.domain.seeds import secret_stream
from sheafed.errors import UndeterminedMapWarning
from sheafed.methods.compressed_ends import compressed_end
from sheafed.methods.maps import (
    End,
    IdentityMaps,
    SharedSolver,
    homogeneous_end,
    plain_end,
    solve,
    strict_end,
)
from sheafed.methods.node import Setting, latent_dtype
from sheafed.methods.whitenings import NoWhitening

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl import SheafFRL


def make_end(method: SheafFRL, setting: Setting, neighbour: str, edge: Edge, other: int) -> End:
    """Return an agent's end of the edge to a neighbour with latents of size `other`."""
    d, is_head = setting.agent.dimension, edge.head == setting.agent.name
    # Nobody else has the problem of a transporting end: remembering it would only cost memory.
    alone = solve if isinstance(method.solver, SharedSolver) else method.solver
    secret = secret_stream(setting.secret, setting.agent.name, "map", neighbour)
    if method.edge_dim is not None:  # whatever the privacy: nothing raw is ever sent
        e = method.edge_dim
        end: End = compressed_end(d, other, e, is_head=is_head, secret=secret, solver=alone)
    elif method.privacy == "strict":
        end = strict_end(d, other, is_head=is_head, secret=secret, solver=alone)
    elif setting.homogeneous:
        end = homogeneous_end(d, is_head=is_head, solver=alone)
    else:
        end = plain_end(d, other, is_head=is_head, solver=method.solver)
    if isinstance(method.maps, IdentityMaps):
        end.map, end.fitted = torch.eye(*end.map.shape), True
    end.map = end.map.to(latent_dtype(setting.agent))
    return end


def warn_if_undetermined(
    method: SheafFRL, policy: PilotPolicy, total: int, edge: Edge, needed: int
) -> None:
    """Warn if the pilots that maps are fitted from are too few for an edge.

    Args:
        method: the choices.
        policy: which pilots a round has.
        total: how many pilots there are.
        edge: whose map it is.
        needed: the smaller latent size of its ends.
    """
    if isinstance(method.maps, IdentityMaps):
        return
    needed = min(needed, method.edge_dim or needed)
    per_round = method.maps.source == "round"
    available = policy.count if per_round else total
    # Whitening centres a round's pilots, which costs them one direction.
    rank = available - (per_round and not isinstance(method.whitening, NoWhitening))
    if rank < needed:
        remedy = (
            "fit maps from the running cross-covariance or from all pilots"
            if per_round
            else "use more pilots"
        )
        warnings.warn(
            f"edge {edge.tail} -> {edge.head}: {available} pilots leave the map undetermined on a "
            f"subspace of dimension {needed - rank} of {needed}; {remedy}",
            UndeterminedMapWarning,
            stacklevel=3,
        )
