"""Fitting: whitenings and Procrustes maps from the latents of shared pilots."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import networkx as nx
import torch
from torch import Tensor

from sheafed import graphs
from sheafed.alignment.alignment import Alignment, Array, as_tensor
from sheafed.alignment.report import EdgeFit
from sheafed.errors import (
    EmptyInputError,
    GraphError,
    InputError,
    RankError,
    ShapeError,
    SingularCovarianceError,
    UndeterminedMapWarning,
)
from sheafed.graphs import Edge
from sheafed.linalg.checks import check_matrix
from sheafed.linalg.identifiability import identifiability, numerical_rank
from sheafed.linalg.procrustes import misalignment, procrustes
from sheafed.linalg.whitening import Shrinkage, Whitening, check_variance, zca
from sheafed.sheaf.network_sheaf import NetworkSheaf

WhiteningSource = Literal["pilots", "private"]


def align(
    latents: Mapping[str, Array],
    graph: nx.Graph[str] | Iterable[tuple[str, str]] | None = None,
    whitening: WhiteningSource | None = "pilots",
    shrinkage: Shrinkage = "auto",
    private: Mapping[str, Array] | None = None,
) -> Alignment:
    """Align the latent spaces of encoders that exist already; nothing is trained.

    >>> import numpy as np
    >>> ada = np.random.default_rng(0).standard_normal((100, 3))
    >>> bo = 2 * ada[:, ::-1] + 1  # the same pilots, encoded otherwise
    >>> alignment = align({"ada": ada, "bo": bo}, shrinkage=0.0)
    >>> np.allclose(alignment.send(ada, "ada", "bo"), bo)
    True

    Args:
        latents: for each agent the latents `(K, d)` of the same K pilots in the same order.
        graph: the neighbours, as a networkx graph or a list of edges; all pairs by default.
        whitening: fit the whitening to the pilots, or to each agent's own `private` latents, or
            leave it out (None). Private data that are shifted between agents make it a poor
            reference.
        shrinkage: how far covariances are shrunk before whitening, 0 to 1, or `"auto"`.
        private: with `whitening="private"`, each agent's latents `(n, d)` of its own data.
    """
    if len(latents) < 2:
        raise EmptyInputError(f"alignment needs at least two agents, got {list(latents)}")
    pilots = {name: _checked(f"the pilot latents of {name!r}", x) for name, x in latents.items()}
    _check_same_pilots(pilots)
    network = _network(graph, sorted(pilots))
    whitenings = _fit_whitenings(pilots, whitening, shrinkage, private)
    white = {name: whitenings[name].whiten(x.double()) for name, x in pilots.items()}
    # Of the latents as they were given: in float64, and whitened, their rounding looks like data.
    ranks = {name: numerical_rank(x, whitenings[name].mean) for name, x in pilots.items()}
    dims = {name: x.shape[-1] for name, x in pilots.items()}
    maps: dict[Edge, Tensor] = {}
    fits = []
    for edge in graphs.orient(network, dims):
        head, tail = white[edge.head], white[edge.tail]
        with warnings.catch_warnings():
            # One warning below names all such edges.
            warnings.simplefilter("ignore", UndeterminedMapWarning)
            maps[edge] = procrustes(head, tail)
        misfit = misalignment(head, tail @ maps[edge].mT)
        mismatch = misalignment(tail, head @ maps[edge])
        if misfit is None or mismatch is None:
            raise RankError(
                f"the latents of {edge.head!r} or {edge.tail!r} are all zero; check the encoders"
            )
        judged = identifiability(
            head,
            tail,
            ranks=(ranks[edge.head], ranks[edge.tail]),
            precision=_precision(pilots[edge.head], pilots[edge.tail]),
        )
        fits.append(
            EdgeFit(
                head=edge.head,
                tail=edge.tail,
                d_head=dims[edge.head],
                d_tail=dims[edge.tail],
                misalignment=misfit,
                mismatch=mismatch,
                rank=judged.rank_cross,
                gap=judged.gap,
            )
        )
    _warn_undetermined(fits, pilots=len(next(iter(pilots.values()))))
    return Alignment(NetworkSheaf(network, dims, maps), whitenings, tuple(fits))


def _checked(name: str, x: Array) -> Tensor:
    given = as_tensor(name, x)
    check_matrix(name, given.double())
    return given


def _precision(*given: Tensor) -> torch.dtype:
    """Return that of the sums behind latents; those of half precision were summed in float32."""
    double = all(x.dtype == torch.float64 for x in given)
    return torch.float64 if double else torch.float32


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
        return {name: _fit(name, x, shrinkage) for name, x in pilots.items()}
    if private is None:
        raise InputError(f"whitening must be 'pilots', 'private' or None, got {whitening!r}")
    if set(private) != set(pilots):
        raise GraphError(
            f"private latents are needed of {sorted(pilots)}, got those of {sorted(private)}"
        )
    fitted = {}
    for name, x in private.items():
        own = _checked(f"the private latents of {name!r}", x)
        if own.ndim != 2 or own.shape[-1] != pilots[name].shape[-1]:
            raise ShapeError(
                f"the private latents of {name!r} must be (n, {pilots[name].shape[-1]}), got "
                f"{tuple(own.shape)}"
            )
        fitted[name] = _fit(name, own, shrinkage)
    return fitted


def _fit(name: str, x: Tensor, shrinkage: Shrinkage) -> Whitening:
    try:
        whitening = zca(x.double(), shrinkage)
        if shrinkage == 0:  # what float64 takes for a little variance may be rounding
            d = x.shape[-1]
            check_variance(d - numerical_rank(x, whitening.mean), d)
    except SingularCovarianceError as problem:
        raise SingularCovarianceError(f"latents of {name!r}: {problem}") from problem
    return whitening


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
