"""Post-hoc alignment: encoders that were trained apart learn to read each other's latents.

No training: the pilots' latents are whitened, every edge gets its Procrustes map, and a latent is
sent by whitening it, carrying it along a path of edges, and colouring it for the receiver.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed import graphs
from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    GraphError,
    InputError,
    ShapeError,
    UndeterminedMapWarning,
    UnknownAgentError,
)
from sheafed.graphs import Edge
from sheafed.linalg.checks import FLOATING, check_matrix
from sheafed.linalg.identifiability import identifiability
from sheafed.linalg.procrustes import misalignment, procrustes
from sheafed.linalg.whitening import Shrinkage, Whitening, zca
from sheafed.sheaf.network_sheaf import Holonomy, NetworkSheaf

Array = NDArray[np.float32] | NDArray[np.float64] | Tensor
ArrayT = TypeVar("ArrayT", NDArray[np.float32], NDArray[np.float64], Tensor)
WhiteningSource = Literal["pilots", "private"]


@dataclass(frozen=True)
class EdgeFit:
    """How well one edge is glued, and whether its pilots determine its map."""

    head: str
    tail: str
    d_head: int
    d_tail: int
    residual: float
    """||A_i - V A_j||^2 over ||A_i||^2 + ||A_j||^2 of the white pilots: 0 glued, 1 unrelated."""
    rank: int
    """Of the cross-covariance; the map is determined when it equals `d_tail`."""
    gap: float

    @property
    def undetermined_dimension(self) -> int:
        """The dimension of the subspace on which the map is an arbitrary choice."""
        return self.d_tail - self.rank


@dataclass(frozen=True)
class AlignmentReport:
    """Every edge, and every cycle of a basis: what a round trip does to a latent."""

    edges: tuple[EdgeFit, ...]
    cycles: tuple[Holonomy, ...]


@dataclass(frozen=True)
class Alignment:
    """White latent spaces glued along the edges of a graph."""

    sheaf: NetworkSheaf
    whitenings: Mapping[str, Whitening]
    fits: tuple[EdgeFit, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The agents, sorted."""
        return tuple(sorted(self.whitenings))

    def send(self, z: ArrayT, sender: str, receiver: str) -> ArrayT:
        """Return the sender's latents `(n, d_sender)` as the receiver would have them.

        The result `(n, d_receiver)` is of the kind and precision of `z`, ready for the receiver's
        head. A single latent `(d_sender,)` works too. Between agents that are not neighbours the
        latents take the path of least residual.
        """
        path = self.path(sender, receiver)
        given = _to_tensor(f"the latents of {sender!r}", z)
        rows = given[None] if given.ndim == 1 else given
        white = self.whitenings[sender].whiten(rows.double())
        coloured = self.whitenings[receiver].colour(self.sheaf.transport_along(white, path))
        result = coloured.reshape(*given.shape[:-1], coloured.shape[-1]).to(given.dtype)
        return result if isinstance(z, Tensor) else result.numpy()

    def path(self, sender: str, receiver: str) -> list[str]:
        """Return the path from sender to receiver whose residuals sum to the least."""
        for name in (sender, receiver):
            if name not in self.whitenings:
                raise UnknownAgentError(
                    f"no agent named {name!r} in this alignment; it has {', '.join(self.names)}"
                )
        weighted: nx.Graph[str] = nx.Graph()
        weighted.add_nodes_from(self.names)
        weighted.add_weighted_edges_from((f.head, f.tail, f.residual) for f in self.fits)
        return list(nx.dijkstra_path(weighted, sender, receiver))

    def report(self) -> AlignmentReport:
        """Return the quality of every edge and the holonomy of a basis of cycles."""
        return AlignmentReport(
            edges=self.fits,
            cycles=tuple(self.sheaf.holonomy(cycle) for cycle in self.sheaf.cycles()),
        )

    def save(self, directory: str | Path) -> Path:
        """Write the alignment to a directory as JSON and safetensors."""
        from sheafed.alignment.files import save

        return save(self, directory)

    @classmethod
    def load(cls, directory: str | Path) -> Alignment:
        """Read an alignment that `save` wrote. Nothing is unpickled."""
        from sheafed.alignment.files import load

        return load(directory)


def align(
    latents: Mapping[str, Array],
    graph: nx.Graph[str] | Iterable[tuple[str, str]] | None = None,
    whitening: WhiteningSource | None = "pilots",
    shrinkage: Shrinkage = "auto",
    private: Mapping[str, Array] | None = None,
) -> Alignment:
    """Align the latent spaces of encoders that exist already.

    Args:
        latents: for each agent the latents `(K, d)` of the same K pilots in the same order.
        graph: who talks to whom: a networkx graph or a list of edges; everybody by default.
        whitening: fit the whitening to the pilots, or to each agent's own `private` latents, or
            leave it out. Private data that are shifted between agents make it a poor reference.
        shrinkage: how far covariances are shrunk before whitening, 0 to 1, or `"auto"`.
        private: with `whitening="private"`, each agent's latents `(n, d)` of its own data.
    """
    if len(latents) < 2:
        raise EmptyInputError(f"alignment needs at least two agents, got {list(latents)}")
    pilots = {
        name: check_matrix(
            f"the pilot latents of {name!r}", _to_tensor(f"the latents of {name!r}", x)
        ).double()
        for name, x in latents.items()
    }
    _check_same_pilots(pilots)
    network = _network(graph, sorted(pilots))
    whitenings = _fit_whitenings(pilots, whitening, shrinkage, private)
    white = {name: whitenings[name].whiten(x) for name, x in pilots.items()}
    dims = {name: x.shape[-1] for name, x in pilots.items()}
    maps: dict[Edge, Tensor] = {}
    fits = []
    for edge in graphs.orient(network, dims):
        head, tail = white[edge.head], white[edge.tail]
        with warnings.catch_warnings():
            # Said below with the edges' names, once for all of them.
            warnings.simplefilter("ignore", UndeterminedMapWarning)
            maps[edge] = procrustes(head, tail)
        judged = identifiability(head, tail)
        fits.append(
            EdgeFit(
                head=edge.head,
                tail=edge.tail,
                d_head=dims[edge.head],
                d_tail=dims[edge.tail],
                residual=float(misalignment(head, tail, maps[edge])),
                rank=judged.rank_cross,
                gap=judged.gap,
            )
        )
    _warn_undetermined(fits, pilots=len(next(iter(pilots.values()))))
    return Alignment(NetworkSheaf(network, dims, maps), whitenings, tuple(fits))


def _to_tensor(name: str, x: Array) -> Tensor:
    tensor = torch.as_tensor(x)
    if tensor.dtype not in FLOATING:
        raise DtypeError(f"{name} must be float32 or float64, got {tensor.dtype}; convert them")
    return tensor.detach()


def _check_same_pilots(pilots: Mapping[str, Tensor]) -> None:
    for name, x in pilots.items():
        if x.ndim != 2:
            raise ShapeError(
                f"the pilot latents of {name!r} must be (K, d), got {tuple(x.shape)}; flatten them"
            )
    counts = {name: len(x) for name, x in pilots.items()}
    if len(set(counts.values())) > 1:
        raise ShapeError(
            f"every agent must encode the same pilots in the same order, got {counts} rows"
        )


def _network(
    graph: nx.Graph[str] | Iterable[tuple[str, str]] | None, names: Sequence[str]
) -> nx.Graph[str]:
    if graph is None:
        return graphs.complete(names)
    network = graph if isinstance(graph, nx.Graph) else graphs.from_edges(graph, names)
    graphs.check_graph(network, names)
    return network


def _fit_whitenings(
    pilots: Mapping[str, Tensor],
    whitening: WhiteningSource | None,
    shrinkage: Shrinkage,
    private: Mapping[str, Array] | None,
) -> dict[str, Whitening]:
    if (private is not None) != (whitening == "private"):
        raise InputError(
            f"private latents go with whitening='private'; got whitening={whitening!r} and "
            f"{'no ' if private is None else ''}private latents"
        )
    if whitening is None:
        return {name: _no_whitening(x.shape[-1]) for name, x in pilots.items()}
    if whitening == "pilots":
        return {name: zca(x, shrinkage) for name, x in pilots.items()}
    if private is None:
        raise InputError(f"whitening must be 'pilots', 'private' or None, got {whitening!r}")
    if set(private) != set(pilots):
        raise GraphError(
            f"private latents are needed of {sorted(pilots)}, got those of {sorted(private)}"
        )
    fitted = {}
    for name, x in private.items():
        own = _to_tensor(f"the private latents of {name!r}", x).double()
        if own.ndim != 2 or own.shape[-1] != pilots[name].shape[-1]:
            raise ShapeError(
                f"the private latents of {name!r} must be (n, {pilots[name].shape[-1]}), got "
                f"{tuple(own.shape)}"
            )
        fitted[name] = zca(own, shrinkage)
    return fitted


def _no_whitening(dimension: int) -> Whitening:
    identity = torch.eye(dimension, dtype=torch.float64)
    return Whitening(torch.zeros(dimension, dtype=torch.float64), identity, identity)


def _warn_undetermined(fits: Sequence[EdgeFit], pilots: int) -> None:
    loose = [f for f in fits if f.undetermined_dimension]
    if loose:
        named = ", ".join(
            f"{f.tail} -> {f.head} on {f.undetermined_dimension} of {f.d_tail} dimensions"
            for f in loose
        )
        warnings.warn(
            f"{pilots} pilots leave {len(loose)} of {len(fits)} maps undetermined on a subspace "
            f"({named}); use more pilots, or look for dead latent units",
            UndeterminedMapWarning,
            stacklevel=3,
        )
