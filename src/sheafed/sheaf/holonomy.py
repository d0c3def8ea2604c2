r"""Holonomy: the map that transport around a cycle of agents applies to a latent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import torch
from torch import Tensor

from sheafed.errors import GraphError


@dataclass(frozen=True, eq=False)
class Holonomy:
    r"""The composition of the transports around a cycle, $H = T_{1m} \cdots T_{32} T_{21}$.

    A latent $z$ of the first agent comes back as $Hz$. Transports never lengthen a vector, so
    $Hz = z$ exactly for those values $z$ at the first agent that a section over the cycle takes.

    `cycle` names the agents once each; `matrix` is `(d, d)` in float64, $d$ the stalk dimension of
    the first agent; `deviation` is $\|H - I\|_F / \sqrt d$.
    """

    cycle: tuple[str, ...]
    matrix: Tensor
    deviation: float


def compose(cycle: tuple[str, ...], transports: Iterable[Tensor], dimension: int) -> Holonomy:
    """Multiply the transports `(d_receiver, d_sender)`, the first of which acts first."""
    identity = torch.eye(dimension, dtype=torch.float64)
    matrix = identity
    for transport in transports:
        matrix = transport.to(identity) @ matrix
    deviation = torch.linalg.matrix_norm(matrix - identity) / dimension**0.5
    return Holonomy(cycle, matrix, float(deviation))


def check_cycle(cycle: Sequence[str]) -> tuple[str, ...]:
    """Return the agents of a cycle once each; its last may repeat its first."""
    agents = tuple(cycle)
    if len(agents) > 1 and agents[0] == agents[-1]:
        agents = agents[:-1]
    if len(agents) < 3:
        raise GraphError(f"a cycle needs at least 3 agents, got {list(cycle)}; see cycles()")
    repeated = sorted({name for name in agents if agents.count(name) > 1})
    if repeated:
        raise GraphError(
            f"a cycle visits an agent once, but {list(cycle)} visits {repeated} again; split it "
            "there into several cycles"
        )
    return agents


def fundamental_cycles(
    graph: nx.Graph[str], dims: Mapping[str, int]
) -> tuple[tuple[str, ...], ...]:
    r"""Return a cycle basis of a connected graph: $|\mathcal E| - |\mathcal V| + 1$ cycles, sorted.

    Each closes one edge outside a breadth-first tree, which is grown from the first name through
    neighbours in the order of their names. A cycle starts at its agent with the smallest stalk
    (ties by name), since from a larger one the transport through a smaller stalk cannot be the
    identity, and goes on to that of its two neighbours whose name sorts first.
    """
    root = min(graph)
    tree: nx.Graph[str] = nx.Graph(
        (parent, child) for child, parent in nx.bfs_predecessors(graph, root, sort_neighbors=sorted)
    )
    return tuple(
        sorted(
            _rotated(nx.shortest_path(tree, *pair), dims)
            for pair in graph.edges
            if not tree.has_edge(*pair)
        )
    )


def _rotated(cycle: list[str], dims: Mapping[str, int]) -> tuple[str, ...]:
    start = cycle.index(min(cycle, key=lambda name: (dims[name], name)))
    first, *rest = cycle[start:] + cycle[:start]
    return (first, *(rest if rest[0] < rest[-1] else reversed(rest)))
