r"""Routing: paths between agents that are not neighbours, and the loss to expect on them.

There are two losses, both as shares of the latent's energy. At every hop the neighbours' latents of
the pilots may *mismatch* in the smaller of their two spaces. And the narrowest stalk of the path
cannot hold all of a wider latent: that part is lost, however wide later stalks are.
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

    >>> dims = {"ada": 8, "bo": 4, "cy": 8}
    >>> path_loss(["ada", "bo", "cy"], dims, {Edge("ada", "bo"): 0.1, Edge("cy", "bo"): 0.1})
    0.7

    Args:
        path: from the sender, whose latents have size $d$, to the receiver.
        dims: $d_i$, the stalk dimension of every agent.
        mismatch: $\mu$ of every edge, the misalignment of the pilots in its smaller space.
    """
    check_path(path, mismatch)
    mismatched = sum(mismatch[_edge(a, b, dims)] for a, b in pairwise(path))
    size = dims[path[0]]
    return mismatched + (size - min(dims[name] for name in path)) / size


def lowest_loss_path(
    sender: str, receiver: str, dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> list[str]:
    """Return the path from sender to receiver with the least `path_loss`.

    >>> dims = {"ada": 8, "bo": 2, "cy": 8, "dee": 8}
    >>> edges = [("ada", "bo"), ("bo", "cy"), ("ada", "dee"), ("dee", "cy")]
    >>> mismatch = {_edge(a, b, dims): 0.1 for a, b in edges}
    >>> lowest_loss_path("ada", "cy", dims, mismatch)
    ['ada', 'dee', 'cy']
    """
    check_agents((sender, receiver), dims)
    network: nx.Graph[str] = nx.Graph()
    network.add_nodes_from(dims)
    for (head, tail), loss in sorted(mismatch.items()):
        network.add_edge(head, tail, weight=loss)
    found = []
    # For every width that the narrowest stalk may have: the least mismatch through such stalks.
    for width in sorted(set(dims.values()), reverse=True):
        if width <= min(dims[sender], dims[receiver]):
            wide = network.subgraph(name for name in dims if dims[name] >= width)
            with suppress(nx.NetworkXNoPath):
                found.append(list(nx.dijkstra_path(wide, sender, receiver)))
    if not found:
        raise GraphError(
            f"no path from {sender!r} to {receiver!r}: the network is disconnected; add an edge "
            "between its components"
        )
    return min(found, key=lambda path: path_loss(path, dims, mismatch))


def check_path(path: Sequence[str], edges: Mapping[Edge, object]) -> None:
    """Raise unless every two agents in succession are neighbours."""
    if not path:
        raise EmptyInputError("the path is empty; give the agents from sender to receiver")
    for a, b in pairwise(path):
        if Edge(a, b) not in edges and Edge(b, a) not in edges:
            raise GraphError(
                f"the path {list(path)} goes from {a!r} to {b!r}, which are not neighbours; give "
                "another path, or none to have one found"
            )


def check_agents(names: Sequence[str], known: Mapping[str, object]) -> None:
    """Raise unless all agents are in the network."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UnknownAgentError(f"unknown agents {unknown}; the network has {sorted(known)}")


def _edge(a: str, b: str, dims: Mapping[str, int]) -> Edge:
    return orient_pair((a, dims[a]), (b, dims[b]))
