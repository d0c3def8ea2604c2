r"""Ways between agents that are not neighbours, and what a latent is expected to lose on them.

A hop along an edge can lose in two ways, and neighbours know both. Their latents of the pilots may
*disagree* where both have a say, in the smaller of the two spaces; and a smaller stalk has no
*room* for all of a latent. Both are shares of the latent's energy, so that losses add up along a
path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import networkx as nx

from sheafed.domain.graphs import Edge, orient_pair
from sheafed.errors import EmptyInputError, GraphError, UnknownAgentError


def hop_loss(mismatch: float, size: int, sender: int, receiver: int) -> float:
    r"""Return the expected loss of one hop, $\mu + \max(0, \min(d, d_i) - d_j) / d$.

    Args:
        mismatch: $\mu$, the normalised residual of the edge in its smaller space.
        size: $d$, of the latent that is under way: the dimension of the agent that encoded it. What
            a larger stalk adds on the way cannot be lost.
        sender: $d_i$ of the agent that the hop leaves.
        receiver: $d_j$ of the one that it reaches.
    """
    return mismatch + max(0, min(size, sender) - receiver) / size


def path_loss(
    path: Sequence[str], dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> float:
    """Return the expected loss of a path: the sum over its hops."""
    check_path(path, mismatch)
    return sum(
        hop_loss(mismatch[_edge(a, b, dims)], dims[path[0]], dims[a], dims[b])
        for a, b in pairwise(path)
    )


def least_loss_path(
    sender: str, receiver: str, dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> list[str]:
    """Return the path from sender to receiver with the least expected loss.

    Args:
        sender: who encoded the latent.
        receiver: who is to read it.
        dims: the stalk dimension of every agent.
        mismatch: of every edge of the network, see `hop_loss`.
    """
    check_agents((sender, receiver), dims)
    network: nx.DiGraph[str] = nx.DiGraph()
    network.add_nodes_from(dims)
    for edge in sorted(mismatch):
        for a, b in (edge, edge[::-1]):
            loss = hop_loss(mismatch[edge], dims[sender], dims[a], dims[b])
            network.add_edge(a, b, weight=loss)
    try:
        return list(nx.dijkstra_path(network, sender, receiver))
    except nx.NetworkXNoPath as problem:
        raise GraphError(
            f"there is no path from {sender!r} to {receiver!r}: the network has fallen apart; join "
            "its parts"
        ) from problem


def check_path(path: Sequence[str], edges: Mapping[Edge, object]) -> None:
    """Raise unless every two agents in succession are neighbours."""
    if not path:
        raise EmptyInputError("the path is empty; give the agents from sender to receiver")
    for a, b in pairwise(path):
        if Edge(a, b) not in edges and Edge(b, a) not in edges:
            raise GraphError(
                f"the path {list(path)} goes from {a!r} to {b!r}, which are not neighbours; go "
                "round, or leave the path out to have one found"
            )


def check_agents(names: Sequence[str], known: Mapping[str, object]) -> None:
    """Raise unless all agents are of the network."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UnknownAgentError(f"unknown agents {unknown}; the network has {sorted(known)}")


def _edge(a: str, b: str, dims: Mapping[str, int]) -> Edge:
    return orient_pair((a, dims[a]), (b, dims[b]))
