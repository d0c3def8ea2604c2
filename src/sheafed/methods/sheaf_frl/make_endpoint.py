"""The endpoints that the options of Sheaf-FRL need, and whether pilots determine their maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sheafed.graphs import Edge
from sheafed.methods.endpoints import (
    EdgeEndpoint,
    homogeneous_endpoint,
    plain_endpoint,
    strict_endpoint,
)
from sheafed.methods.node import NodeContext, latent_dtype
from sheafed.methods.shared_solver import SharedSolver, solve
from sheafed.methods.sheaf_frl.compressed_endpoints import compressed_endpoint
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps
from sheafed.methods.undetermined_maps import warn_if_rank_is_low
from sheafed.methods.whitening import NoWhitening
from sheafed.pilots.policies import PilotPolicy
from sheafed.seeds import secret_stream

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.method import SheafFRL


def make_endpoint(
    method: SheafFRL, context: NodeContext, neighbour: str, edge: Edge, other: int
) -> EdgeEndpoint:
    """Return an agent's endpoint of the edge to a neighbour with latents of size `other`."""
    d, is_head = context.agent.dimension, edge.head == context.agent.name
    # The problem of a transporting endpoint is its own: sharing it would only cost memory.
    unshared = solve if isinstance(method.solver, SharedSolver) else method.solver
    secret = secret_stream(context.secret, context.agent.name, "map", neighbour)
    if method.edge_dim is not None:  # whatever the privacy: nothing raw is ever sent
        e = method.edge_dim
        endpoint: EdgeEndpoint = compressed_endpoint(
            d, other, e, is_head=is_head, secret=secret, solver=unshared
        )
    elif method.privacy == "strict":
        endpoint = strict_endpoint(d, other, is_head=is_head, secret=secret, solver=unshared)
    elif context.homogeneous:
        endpoint = homogeneous_endpoint(d, is_head=is_head, solver=unshared)
    else:
        endpoint = plain_endpoint(d, other, is_head=is_head, solver=method.solver)
    if isinstance(method.maps, IdentityMaps):
        endpoint.map, endpoint.fitted = torch.eye(*endpoint.map.shape), True
    endpoint.map = endpoint.map.to(context.agent.device, latent_dtype(context.agent))
    return endpoint


def warn_if_undetermined(
    method: SheafFRL, policy: PilotPolicy, total: int, edge: Edge, needed: int
) -> None:
    """Warn if the pilots that maps are fitted from are too few for an edge.

    Args:
        method: the options.
        policy: selects the pilots of a round.
        total: how many pilots there are.
        edge: the edge of the map.
        needed: the smaller latent size of the edge.
    """
    if isinstance(method.maps, IdentityMaps):
        return
    needed = min(needed, method.edge_dim or needed)
    per_round = method.maps.source == "round"
    available = policy.count if per_round else total
    # Whitening centres a round's pilots, which costs them one direction.
    rank = available - (per_round and not isinstance(method.whitening, NoWhitening))
    remedy = (
        "fit maps from the running cross-covariance or from all pilots"
        if per_round
        else "use more pilots"
    )
    warn_if_rank_is_low(edge, available, rank, needed, remedy)
