r"""Ways between agents that are not neighbours, and what a latent is expected to lose on them.

It can lose in two ways, and the agents on the way know both. At every hop neighbours may *disagree*
about the pilots where both have a say, in the smaller of their two spaces. And the narrowest stalk
has no *room* for all of a latent: what is lost there stays lost, whatever wider stalks add later.
Both are shares of the latent's energy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import networkx as nx

from sheafed.errors import EmptyInputError, GraphError, UnknownAgentError
from sheafed.graphs import Edge, orient_pair


def path_loss(
    path: Sequence[str], dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> float:
    r"""Return the expected loss of a path, $\sum_{ij} \mu_{ij} + (d - \min_i d_i) / d$.

    Args:
        path: from the agent that encoded the latent, which has $d$ numbers, to who is to read it.
        dims: $d_i$, the stalk dimension of every agent.
        mismatch: $\mu$ of every edge, the normalised residual in its smaller space.
    """
    check_path(path, mismatch)
    disagreement = sum(mismatch[_edge(a, b, dims)] for a, b in pairwise(path))
    size = dims[path[0]]
    return disagreement + (size - min(dims[name] for name in path)) / size


def lowest_loss_path(
    sender: str, receiver: str, dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> list[str]:
    """Return the path from sender to receiver with the least expected loss.

    Args:
        sender: who encoded the latent.
        receiver: who is to read it.
        dims: the stalk dimension of every agent.
        mismatch: of every edge of the network, see `path_loss`.
    """
    check_agents((sender, receiver), dims)
    network: nx.Graph[str] = nx.Graph()
    network.add_nodes_from(dims)
    for (head, tail), loss in sorted(mismatch.items()):
        network.add_edge(head, tail, weight=loss)
    found = []
    # For every width that the narrowest stalk may have: the least disagreement among those as wide.
    for width in sorted(set(dims.values()), reverse=True):
        if width <= min(dims[sender], dims[receiver]):
            wide = network.subgraph(name for name in dims if dims[name] >= width)
            with suppress(nx.NetworkXNoPath):
                found.append(list(nx.dijkstra_path(wide, sender, receiver)))
    if not found:
        raise GraphError(
            f"there is no path from {sender!r} to {receiver!r}: the network has fallen apart; join "
            "its parts"
        )
    return min(found, key=lambda path: path_loss(path, dims, mismatch))


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
