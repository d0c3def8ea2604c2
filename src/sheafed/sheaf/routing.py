r"""Routing: paths between agents that are not neighbours, and the loss to expect on them.

What a path keeps of a latent is the product of the shares that its parts keep. At every hop the
neighbours' latents of the pilots may *mismatch* in the smaller of their two spaces, by $\mu$: the
share $1 - \mu$ is kept. And the narrowest stalk of the path, of size w, keeps w of the d dimensions
of a wider latent, however wide later stalks are.

Losses do not add up: what the first hop has lost, the second cannot lose again. Their sum is what
the product amounts to for small losses; for large ones it overrates hops against narrow stalks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import networkx as nx

from sheafed.errors import EmptyInputError, GraphError, UnknownAgentError
from sheafed.graphs import Edge, orient_pair


def path_loss(
    path: Sequence[str], dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> float:
    r"""Return the expected loss of a path, $1 - \frac{\min_i d_i}{d} \prod_{ij} (1 - \mu_{ij})$.

    >>> dims = {"ada": 8, "bo": 4, "cy": 8}
    >>> path_loss(["ada", "bo", "cy"], dims, {Edge("ada", "bo"): 0.5, Edge("cy", "bo"): 0.5})
    0.875

    Args:
        path: from the sender, whose latents have size $d$, to the receiver.
        dims: $d_i$, the stalk dimension of every agent.
        mismatch: $\mu$ of every edge, the misalignment of the pilots in its smaller space; opposed
            latents, with $\mu > 1$, keep as little as unrelated ones.
    """
    check_path(path, mismatch)
    kept = math.prod(_kept(mismatch[_edge(a, b, dims)]) for a, b in pairwise(path))
    return 1 - kept * min(dims[name] for name in path) / dims[path[0]]


def lowest_loss_path(
    sender: str, receiver: str, dims: Mapping[str, int], mismatch: Mapping[Edge, float]
) -> list[str]:
    """Return the edge between neighbours, else the path with the least `path_loss`.

    The map of an edge was fitted to the pilots of both its ends, which no composition was, even
    where its hops promise more.

    >>> dims = {"ada": 8, "bo": 2, "cy": 8, "dee": 8}
    >>> edges = [("ada", "bo"), ("bo", "cy"), ("ada", "dee"), ("dee", "cy")]
    >>> mismatch = {_edge(a, b, dims): 0.1 for a, b in edges}
    >>> lowest_loss_path("ada", "cy", dims, mismatch)
    ['ada', 'dee', 'cy']
    """
    check_agents((sender, receiver), dims)
    if Edge(sender, receiver) in mismatch or Edge(receiver, sender) in mismatch:
        return [sender, receiver]
    network: nx.Graph[str] = nx.Graph()
    network.add_nodes_from(dims)
    for (head, tail), lost in sorted(mismatch.items()):
        kept = _kept(lost)
        network.add_edge(head, tail, weight=-math.log(kept) if kept else math.inf)
    found = []
    # For every width that the narrowest stalk may have, the path that keeps most.
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


def _kept(mismatch: float) -> float:
    return max(0.0, 1 - mismatch)


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
    for name in names:
        if not isinstance(name, str):
            raise UnknownAgentError(
                f"an agent is given by its name, got {type(name).__name__}; the network has "
                f"{sorted(known)}, and inputs or latents come before names"
            )
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UnknownAgentError(f"unknown agents {unknown}; the network has {sorted(known)}")


def _edge(a: str, b: str, dims: Mapping[str, int]) -> Edge:
    return orient_pair((a, dims[a]), (b, dims[b]))
