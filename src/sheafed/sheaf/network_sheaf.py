r"""The network sheaf (Sections 3 and 4): stalks, restriction maps, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    GraphError,
    InputError,
    ShapeError,
    UnknownAgentError,
)
from sheafed.graphs import Edge, incoming, orient, outgoing
from sheafed.linalg.checks import check_matrix
from sheafed.sheaf.holonomy import Holonomy, check_cycle, compose, fundamental_cycles
from sheafed.sheaf.restriction_maps import check_dtypes, check_maps

if TYPE_CHECKING:
    from scipy import sparse

Cochain: TypeAlias = Mapping[str, Tensor]
r"""A 0-cochain $z = \{z_i\}$: each agent's latent `(d_i,)`, or its batch of latents `(n, d_i)`."""


@dataclass(frozen=True, eq=False, repr=False)
class NetworkSheaf:
    r"""Isometric restriction maps on a connected graph with the embedding orientation.

    On the edge $e_{ij}$ with head $i$ and tail $j$, $d_i \ge d_j$, the edge stalk is
    $\mathbb R^{d_i}$, with $\mathcal F_{i \to e_{ij}} = O_{ji}$ and
    $\mathcal F_{j \to e_{ij}} = V_{ij}$. The sheaf keeps copies of the maps, detached from
    autograd.

    >>> from sheafed import graphs
    >>> v = torch.tensor([[1.0], [0.0]])  # embeds bo's line into ada's plane
    >>> sheaf = NetworkSheaf(graphs.line(["ada", "bo"]), {"ada": 2, "bo": 1}, {("ada", "bo"): v})
    >>> sheaf
    NetworkSheaf(2 agents, 1 edges, stalks of 1 to 2 dimensions)
    >>> sheaf.transport(torch.tensor([[5.0]]), "bo", "ada")
    tensor([[5., 0.]])
    >>> sheaf.total_variation({"ada": torch.tensor([5.0, 1.0]), "bo": torch.tensor([5.0])})
    tensor(1.)
    >>> len(sheaf.global_sections()["ada"])
    1

    Args:
        graph: the agents and their edges.
        dims: the stalk dimension $d_i$ of every agent.
        maps: $V_{ij}$ `(d_head, d_tail)` with orthonormal columns for each edge of
            `orient(graph, dims)`.
        rotations: $O_{ji}$ `(d_head, d_head)` orthogonal for each edge. None: the identity,
            i.e. the re-parameterised form of eq. local_gluing.

    `names` are the agents and `edges` the oriented edges, both sorted.
    """

    graph: nx.Graph[str]
    dims: Mapping[str, int]
    maps: Mapping[Edge, Tensor]
    rotations: Mapping[Edge, Tensor] | None = None
    names: tuple[str, ...] = field(init=False)
    edges: tuple[Edge, ...] = field(init=False)

    def __post_init__(self) -> None:
        edges = orient(self.graph, self.dims)
        names = tuple(sorted(self.dims))
        dims = MappingProxyType({name: self.dims[name] for name in names})
        shapes = {edge: (dims[edge.head], dims[edge.tail]) for edge in edges}
        maps = check_maps("map", self.maps, shapes, names)
        rotations = None
        if self.rotations is not None:
            shapes = {edge: (dims[edge.head], dims[edge.head]) for edge in edges}
            rotations = check_maps("rotation", self.rotations, shapes, names)
            check_dtypes(maps, rotations)
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(names)
        graph.add_edges_from(edges)
        for attribute, value in {
            "graph": nx.freeze(graph),
            "dims": dims,
            "maps": maps,
            "rotations": rotations,
            "names": names,
            "edges": edges,
        }.items():
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        smallest, largest = min(self.dims.values()), max(self.dims.values())
        return (
            f"NetworkSheaf({len(self.names)} agents, {len(self.edges)} edges, "
            f"stalks of {smallest} to {largest} dimensions)"
        )

    def reparameterised(self) -> NetworkSheaf:
        r"""Return the sheaf with $V_{ij} \leftarrow O_{ji}^\top V_{ij}$ and no rotations.

        It has the same total variation (eq. local_gluing), sections and transports.
        """
        return NetworkSheaf(
            self.graph, self.dims, {edge: self._embedding(edge) for edge in self.edges}
        )

    def coboundary(self) -> sparse.csr_array:
        r"""Return $\Delta$ with $(\Delta z)_{e_{ij}} = O_{ji} z_i - V_{ij} z_j$ (eq. coboundary).

        A float64 matrix of shape `(sum of d_head over edges, sum of d_i over agents)`, edges and
        agents in the order of `edges` and `names`.
        """
        from scipy import sparse  # here: training does without

        if not self.edges:
            return sparse.csr_array((0, sum(self.dims.values())), dtype=np.float64)
        blocks: list[list[sparse.coo_array | None]] = []
        for edge in self.edges:
            at_agent = {edge.head: self._rotation(edge), edge.tail: -self.maps[edge]}
            blocks.append(
                [
                    sparse.coo_array(at_agent[name].double().cpu().numpy())
                    if name in at_agent
                    else None
                    for name in self.names
                ]
            )
        return sparse.block_array(blocks, format="csr")

    def laplacian(self) -> sparse.csr_array:
        r"""Return $L_{\mathcal F} = \Delta^\top \Delta \succeq 0$ (eq. ns_Laplacian) in float64."""
        from scipy import sparse

        delta = self.coboundary()
        return sparse.csr_array(delta.T @ delta)

    def edge_variation(self, z: Cochain) -> dict[Edge, Tensor]:
        r"""Return $\|O_{ji} z_i - V_{ij} z_j\|_2^2$ for each edge, summed over the batch."""
        self._check_cochain(z, self.names)
        return {
            edge: _squared_distance(
                z[edge.head] @ self._rotation(edge).to(z[edge.head]).mT,
                z[edge.tail] @ self.maps[edge].to(z[edge.tail]).mT,
            )
            for edge in self.edges
        }

    def total_variation(self, z: Cochain) -> Tensor:
        r"""Return $\sum_{e_{ij}} \|O_{ji} z_i - V_{ij} z_j\|_2^2 = z^\top L z$ (total_variation).

        A scalar tensor in the latents' dtype, differentiable in them, summed over the rows of a
        batch. It is also the sum of `total_variation_at` over all agents (eq. tv-two-forms).
        """
        return _sum(z, self.edge_variation(z).values())

    def total_variation_at(self, z: Cochain, name: str) -> Tensor:
        r"""Return agent $i$'s contribution to the total variation (eq. tv_at_i).

        $TV(z)|_i = \frac12 \sum_{j \in N(i)^-} \|z_i - V_{ij} z_j\|_2^2
        + \frac12 \sum_{j \in N(i)^+} \|z_j - V_{ji} z_i\|_2^2$, the incoming and the outgoing
        embeddings. Of `z` only the values at the agent and its neighbours are read.
        """
        self._check_agents([name])
        tails, heads = incoming(self.edges, name), outgoing(self.edges, name)
        self._check_cochain(z, [name, *tails, *heads])
        incoming_embedding = _sum(z, (self._gluing(z, Edge(name, tail)) for tail in tails))
        outgoing_embedding = _sum(z, (self._gluing(z, Edge(head, name)) for head in heads))
        return incoming_embedding / 2 + outgoing_embedding / 2

    def transport_map(self, sender: str, receiver: str) -> Tensor:
        r"""Return $T$ `(d_receiver, d_sender)`, which carries a latent to a neighbour.

        $T = O_{ji}^\top V_{ij}$ from the tail $j$ to the head $i$, an isometric embedding, and
        $T = V_{ij}^\top O_{ji}$ back, its left inverse.
        """
        self._check_agents([sender, receiver])
        if (up := Edge(head=receiver, tail=sender)) in self.maps:
            return self._embedding(up)
        if (down := Edge(head=sender, tail=receiver)) in self.maps:
            return self._embedding(down).mT
        path = nx.shortest_path(self.graph, sender, receiver)
        raise GraphError(
            f"agents {sender!r} and {receiver!r} are not neighbours, so no map joins them; "
            f"use transport_along(z, {path})"
        )

    def transport(self, z: Tensor, sender: str, receiver: str) -> Tensor:
        """Carry latents `(..., d_sender)` to a neighbour's space `(..., d_receiver)`.

        The latents keep their dtype and device; the map is converted to them.
        """
        transport_map = self.transport_map(sender, receiver)
        _check_latents(sender, z, self.dims[sender])
        return z @ transport_map.to(z).mT

    def transport_along(self, z: Tensor, path: Sequence[str]) -> Tensor:
        """Carry latents of `path[0]` from neighbour to neighbour to `path[-1]`.

        Components outside the smallest stalk of the path are lost.
        """
        if not path:
            raise EmptyInputError("the path is empty; give the agents from sender to receiver")
        self._check_agents(path)
        _check_latents(path[0], z, self.dims[path[0]])
        for sender, receiver in pairwise(path):
            z = self.transport(z, sender, receiver)
        return z

    def global_sections(self, tolerance: float = 1e-8) -> dict[str, Tensor]:
        r"""Return a basis of $\ker L_{\mathcal F}$, the global sections (global-sec-conditions).

        On a connected graph a section is determined by its value at any one agent, so there are
        $k \le \min_i d_i$.

        Args:
            tolerance: the largest eigenvalue of $L_{\mathcal F}$ that counts as zero.

        Returns:
            For each agent `(k, d_i)` in float64. Row r over all agents is the r-th section; the
            sections are orthonormal as 0-cochains, not agent by agent.
        """
        smallest = min(self.names, key=lambda name: (self.dims[name], name))
        from sheafed.sheaf.sections import kernel, triangular_at

        basis = kernel(self.laplacian(), self.dims[smallest], tolerance)
        ends = accumulate(self.dims[name] for name in self.names)
        rows = {
            name: slice(end - self.dims[name], end)
            for name, end in zip(self.names, ends, strict=True)
        }
        basis = triangular_at(basis, rows[smallest])
        return {name: torch.from_numpy(basis[rows[name]].T.copy()) for name in self.names}

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Return a cycle basis of the graph, each cycle starting at its smallest stalk."""
        return fundamental_cycles(self.graph, self.dims)

    def holonomy(self, cycle: Sequence[str]) -> Holonomy:
        """Return the composition of the transports around a cycle, starting at `cycle[0]`."""
        self._check_agents(cycle)
        agents = check_cycle(cycle)
        steps = pairwise([*agents, agents[0]])
        return compose(
            agents,
            (self.transport_map(sender, receiver) for sender, receiver in steps),
            self.dims[agents[0]],
        )

    def _rotation(self, edge: Edge) -> Tensor:
        if self.rotations is None:
            return torch.eye(self.dims[edge.head]).to(self.maps[edge])
        return self.rotations[edge]

    def _embedding(self, edge: Edge) -> Tensor:
        """Return the re-parameterised map $O_{ji}^\\top V_{ij}$ of eq. local_gluing."""
        if self.rotations is None:
            return self.maps[edge]
        return self.rotations[edge].mT @ self.maps[edge]

    def _gluing(self, z: Cochain, edge: Edge) -> Tensor:
        embedded = z[edge.tail] @ self._embedding(edge).to(z[edge.tail]).mT
        return _squared_distance(z[edge.head], embedded)

    def _check_agents(self, names: Iterable[str]) -> None:
        unknown = sorted({str(name) for name in names if name not in self.dims})
        if unknown:
            raise UnknownAgentError(f"unknown agents {unknown}; the sheaf has {list(self.names)}")

    def _check_cochain(self, z: Cochain, needed: Collection[str]) -> None:
        self._check_agents(z)
        missing = sorted(set(needed) - set(z))
        if missing:
            raise InputError(
                f"the cochain has no latents of agents {missing}; give (d_i,) or (n, d_i) for each"
            )
        for name in needed:
            _check_latents(name, z[name], self.dims[name])
        batches = {name: tuple(z[name].shape[:-1]) for name in needed}
        if len(set(batches.values())) > 1 or any(len(batch) > 1 for batch in batches.values()):
            raise ShapeError(
                "every agent's latents must be (d_i,), or all (n, d_i) with one n, got the "
                f"shapes { ({name: tuple(z[name].shape) for name in needed}) }; row r of each "
                "must encode the same sample"
            )
        dtypes = {name: z[name].dtype for name in needed}
        if len(set(dtypes.values())) > 1:
            raise DtypeError(f"the latents must have one dtype, got {dtypes}; convert them")


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum()


def _sum(z: Cochain, terms: Iterable[Tensor]) -> Tensor:
    """Add scalars; of none, as for an agent without neighbours, the sum is 0 in the dtype of z."""
    return sum(terms, start=next(iter(z.values())).new_zeros(()))


def _check_latents(name: str, z: Tensor, dimension: int) -> None:
    what = f"the latents of agent {name!r}"
    check_matrix(what, z[None] if isinstance(z, Tensor) and z.ndim == 1 else z)
    if z.shape[-1] != dimension:
        raise ShapeError(
            f"{what} must have {dimension} columns, the dimension of its stalk, got shape "
            f"{tuple(z.shape)}; one latent is one row"
        )
