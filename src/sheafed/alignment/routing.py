r"""Paths between agents that are not neighbours, by what held-out pilots say about each hop.

A hop keeps a share of what it is given: its held-out quality, from 0 to 1. A path keeps the
product of the shares of its hops. The explained share of variance is a directed figure: the hop out
of a small latent space has a low one, so narrow agents need no factor of their own.
"""

import math
from collections.abc import Mapping

import networkx as nx

from sheafed.errors import GraphError
from sheafed.sheaf.routing import check_agents

# The weight of a hop that keeps nothing must be finite, for there may be no other way.
LEAST = 1e-9


def best_path(
    sender: str,
    receiver: str,
    names: tuple[str, ...],
    quality: Mapping[tuple[str, str], float | None],
) -> list[str]:
    """Return the edge between neighbours, else the path that keeps most.

    >>> hops = {("a", "b"): 0.9, ("b", "z"): 0.5, ("a", "c"): 0.7, ("c", "z"): 0.7}
    >>> best_path("a", "z", ("a", "b", "c", "z"), hops)
    ['a', 'c', 'z']

    Args:
        sender: where the path starts.
        receiver: where it ends.
        names: of all agents.
        quality: of every directed pair of neighbours, from 0 to 1; None if it is not known, as if
            the hop kept nothing.
    """
    check_agents((sender, receiver), dict.fromkeys(names, 0))
    if quality.get((sender, receiver)) is not None:
        return [sender, receiver]
    network: nx.DiGraph[str] = nx.DiGraph()
    network.add_nodes_from(names)
    for (one, other), kept in sorted(quality.items()):
        network.add_edge(one, other, weight=-math.log(max(kept or 0.0, LEAST)))
    try:
        return list(nx.dijkstra_path(network, sender, receiver))
    except nx.NetworkXNoPath as problem:
        raise GraphError(
            f"no path from {sender!r} to {receiver!r}: the network is disconnected; add an edge "
            "between its components"
        ) from problem
