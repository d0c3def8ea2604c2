r"""The communication graph $\mathcal G = (\mathcal V, \mathcal E)$ and its embedding orientation.

Graphs are undirected `networkx.Graph`s whose nodes are the agents' names. Every builder returns a
graph that passes `check_graph`, and depends on nothing but its arguments: neither on the order of
a mapping, nor on the hashes of the names, nor on a global random state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from random import Random
from typing import NamedTuple, TypeVar

import networkx as nx

from sheafed.errors import (
    DisconnectedGraphError,
    EmptyInputError,
    GraphError,
    InputError,
    UnknownAgentError,
)
from sheafed.linalg.checks import check_fraction
from sheafed.seeds import derive

__all__ = [
    "Edge",
    "check_graph",
    "class_overlap",
    "complete",
    "erdos_renyi",
    "from_edges",
    "incoming",
    "line",
    "orient",
    "orient_pair",
    "outgoing",
    "ring",
    "star",
]

Names = TypeVar("Names", bound=Collection[str])


class Edge(NamedTuple):
    r"""An oriented edge $e_{ij} = (i, j)$: `head` is $i$, the larger stalk, and `tail` is $j$."""

    head: str
    tail: str


def class_overlap(
    targets: Mapping[str, Collection[Hashable]], density: float = 0.4
) -> nx.Graph[str]:
    r"""Connect the agents that share most target classes (Section 6, "Network topology").

    With $w_{ij} = |\mathcal C_i \cap \mathcal C_j|$: a maximum-weight spanning tree of the complete
    graph, then the heaviest remaining edges until there are $\mathrm{round}(\rho N(N-1)/2)$. Edges
    of equal weight are taken in the order of their sorted names.

    >>> graph = class_overlap({"ada": [0, 1], "bo": [1, 2], "cy": [2, 3]}, density=0)
    >>> sorted(graph.edges)
    [('ada', 'bo'), ('bo', 'cy')]

    Args:
        targets: the target classes $\mathcal C_i$ of every agent, at least one each.
        density: the fraction $\rho$ of all pairs that are joined, but never fewer edges than the
            $N - 1$ of the tree.
    """
    check_fraction("density", density)
    names = sorted(_check_names(targets))
    without = [name for name in names if not targets[name]]
    if without:
        raise EmptyInputError(
            f"agents {without} have no target classes; give each at least one, or remove it"
        )
    classes = {name: frozenset(targets[name]) for name in names}
    pairs = list(combinations(names, 2))
    heaviest_first = sorted(
        pairs, key=lambda pair: (-len(classes[pair[0]] & classes[pair[1]]), pair)
    )

    tree = _spanning_tree(names, heaviest_first)
    others = [pair for pair in heaviest_first if pair not in tree]
    wanted = max(round(density * len(pairs)), len(tree))
    return _graph(names, [*tree, *others[: wanted - len(tree)]])


def _spanning_tree(
    names: Iterable[str], pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], None]:
    """Return the pairs that Kruskal's algorithm keeps, in the order in which it meets them."""
    components = nx.utils.UnionFind(names)
    tree: dict[tuple[str, str], None] = {}
    for a, b in pairs:
        if components[a] != components[b]:
            components.union(a, b)
            tree[a, b] = None
    return tree


def ring(names: Sequence[str]) -> nx.Graph[str]:
    """Join each agent to the next and the last to the first.

    >>> sorted(ring(["ada", "bo", "cy"]).edges)
    [('ada', 'bo'), ('ada', 'cy'), ('bo', 'cy')]
    """
    _check_names(names)
    if len(names) < 3:
        raise GraphError(
            f"a ring needs at least 3 agents, got {list(names)}; line(names) joins two"
        )
    return _graph(names, [*pairwise(names), (names[-1], names[0])])


def line(names: Sequence[str]) -> nx.Graph[str]:
    """Join each agent to the next.

    >>> sorted(line(["ada", "bo", "cy"]).edges)
    [('ada', 'bo'), ('bo', 'cy')]
    """
    return _graph(_check_names(names), pairwise(names))


def star(names: Sequence[str]) -> nx.Graph[str]:
    """Join the first agent to all others.

    >>> sorted(star(["hub", "ada", "bo"]).edges)
    [('hub', 'ada'), ('hub', 'bo')]
    """
    centre, *leaves = _check_names(names)
    return _graph(names, [(centre, leaf) for leaf in leaves])


def complete(names: Sequence[str]) -> nx.Graph[str]:
    """Join every two agents.

    >>> len(complete(["ada", "bo", "cy", "dee"]).edges)
    6
    """
    return _graph(_check_names(names), combinations(names, 2))


def erdos_renyi(names: Sequence[str], probability: float, seed: int) -> nx.Graph[str]:
    """Join every two agents with the given probability, then connect the components.

    One number is drawn per pair, in sorted order, so the graph is a function of the set of names
    and the seed. Components are sorted by their first names, and each is joined to the next by an
    edge between the two first names: the fewest edges that connect the graph, without chance. At
    probability 0 that is the line of the sorted names.

    >>> sorted(erdos_renyi(["cy", "ada", "bo"], probability=0, seed=0).edges)
    [('ada', 'bo'), ('bo', 'cy')]
    """
    check_fraction("probability", probability)
    names = sorted(_check_names(names))
    random = Random(derive(seed, "graphs.erdos_renyi"))
    graph = _graph(
        names, [pair for pair in combinations(names, 2) if random.random() < probability]
    )
    graph.add_edges_from(pairwise(component[0] for component in _components(graph)))
    return graph


def from_edges(
    edges: Iterable[tuple[str, str]], names: Collection[str] | None = None
) -> nx.Graph[str]:
    """Build a graph from its edges, each given once as a pair of names, and check it.

    >>> sorted(from_edges([("ada", "bo"), ("bo", "cy")]))
    ['ada', 'bo', 'cy']

    Args:
        edges: the pairs of neighbours, in any order.
        names: all agents; if given, the graph must consist of exactly these.
    """
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        raise GraphError(
            f"edges must be a networkx graph or a list of pairs of names, got {edges!r}; see "
            "sheafed.graphs for line, ring and others"
        )
    pairs = list(edges)
    for pair in pairs:
        if isinstance(pair, str) or [type(name) for name in pair] != [str, str]:
            raise GraphError(f"an edge must be a pair of names, got {pair!r}; write (a, b)")
    repeated = [pair for pair, n in Counter(frozenset(pair) for pair in pairs).items() if n > 1]
    if repeated:
        raise GraphError(
            f"edges given more than once: {sorted(sorted(pair) for pair in repeated)}; the graph "
            "is undirected, so (a, b) and (b, a) are one edge: give it once"
        )
    graph = _graph([] if names is None else _check_names(names), pairs)
    return check_graph(graph, names)


def check_graph(graph: nx.Graph[str], names: Collection[str] | None = None) -> nx.Graph[str]:
    """Return `graph` if agents can cooperate over it.

    It must be undirected, simple and connected, with at least one agent, strings as names, no self
    loops, and exactly the agents `names` if these are given. A single agent without neighbours is
    allowed.

    >>> check_graph(nx.Graph([("ada", "bo"), ("cy", "dee")]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sheafed.errors.DisconnectedGraphError: the graph must be connected, got 2 components: ...
    """
    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise GraphError(
            f"the graph must be an undirected networkx.Graph, got {type(graph).__name__}; "
            "convert it with networkx.Graph(graph): orient() directs the edges by stalk size"
        )
    _check_names(graph.nodes)
    loops = sorted(a for a, b in graph.edges if a == b)
    if loops:
        raise GraphError(f"agents {loops} are joined to themselves; remove these edges")
    if names is not None:
        _check_names(names)
        unknown = sorted(set(graph) - set(names))
        if unknown:
            raise UnknownAgentError(
                f"the graph has agents {unknown} that are not among {sorted(names)}; add them "
                "there or remove them from the graph"
            )
        missing = sorted(set(names) - set(graph))
        if missing:
            raise GraphError(
                f"agents {missing} are not in the graph, which has {sorted(graph)}; join them to "
                "a neighbour or remove them"
            )
    components = _components(graph)
    if len(components) > 1:
        raise DisconnectedGraphError(
            f"the graph must be connected, got {len(components)} components: {components}; add "
            "edges between them or train each component on its own"
        )
    return graph


def orient(graph: nx.Graph[str], dims: Mapping[str, int]) -> tuple[Edge, ...]:
    r"""Give each edge the embedding orientation (Section 4, "Semantic embedding and orientation").

    The head $i$ of $e_{ij}$ is the agent with the larger stalk, $d_i > d_j$. For $d_i = d_j$, where
    the choice is arbitrary, it is the agent whose name sorts first.

    >>> orient(line(["ada", "bo", "cy"]), {"ada": 8, "bo": 16, "cy": 16})
    (Edge(head='bo', tail='ada'), Edge(head='bo', tail='cy'))

    Returns:
        The oriented edges, sorted by head, then tail.
    """
    check_graph(graph, dims)
    for name in sorted(dims):
        if isinstance(dims[name], bool) or not isinstance(dims[name], int) or dims[name] < 1:
            raise InputError(
                f"the stalk dimension of agent {name!r} must be a positive int, got {dims[name]!r}"
            )
    return tuple(sorted(orient_pair((a, dims[a]), (b, dims[b])) for a, b in graph.edges))


def orient_pair(one: tuple[str, int], other: tuple[str, int]) -> Edge:
    """Orient the edge between two agents, each given by its name and stalk dimension.

    >>> orient_pair(("ada", 8), ("bo", 16))
    Edge(head='bo', tail='ada')
    """
    (head, _), (tail, _) = sorted((one, other), key=lambda agent: (-agent[1], agent[0]))
    return Edge(head, tail)


def incoming(edges: Iterable[Edge], name: str) -> tuple[str, ...]:
    r"""Return $\mathcal N(i)^-$: the tails of the edges whose head is `name`.

    >>> incoming([Edge("bo", "ada"), Edge("bo", "cy")], "bo")
    ('ada', 'cy')
    """
    return tuple(edge.tail for edge in edges if edge.head == name)


def outgoing(edges: Iterable[Edge], name: str) -> tuple[str, ...]:
    r"""Return $\mathcal N(i)^+$: the heads of the edges whose tail is `name`.

    >>> outgoing([Edge("bo", "ada"), Edge("bo", "cy")], "cy")
    ('bo',)
    """
    return tuple(edge.head for edge in edges if edge.tail == name)


def _graph(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> nx.Graph[str]:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(pairs)
    return graph


def _components(graph: nx.Graph[str]) -> list[list[str]]:
    return sorted(sorted(component) for component in nx.connected_components(graph))


def _check_names(names: Names) -> Names:
    if isinstance(names, str):
        raise GraphError(f"names must be a sequence of names, got the single string {names!r}")
    if not names:
        raise EmptyInputError("no agents; give at least one name")
    unnamed = [name for name in names if not isinstance(name, str)]
    if unnamed:
        raise GraphError(f"agents must have string names, got {unnamed}; convert them with str()")
    repeated = sorted(name for name, n in Counter(iter(names)).items() if n > 1)
    if repeated:
        raise GraphError(f"names given more than once: {repeated}; every agent needs its own")
    return names
