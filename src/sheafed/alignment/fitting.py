"""Fitting: whitenings, isometries and maps from the latents of shared pilots."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import networkx as nx
import torch
from torch import Tensor

from sheafed import graphs
from sheafed.alignment.alignment import Alignment
from sheafed.alignment.arrays import Array, as_pilots
from sheafed.alignment.fingerprint import fingerprint
from sheafed.alignment.kinds import Kind, KindName, Maps, kinds_of
from sheafed.alignment.pair_maps import choose_maps, pair_fit
from sheafed.alignment.pilot_table import PilotTable, pilot_table
from sheafed.alignment.report import EdgeFit
from sheafed.alignment.selection import Choice, Goal, check_goal, check_varies, varying_support
from sheafed.errors import (
    EmptyInputError,
    GraphError,
    InputError,
    MissingPilotsError,
    MissingPilotsWarning,
    RankError,
    ShapeError,
    UndeterminedMapWarning,
)
from sheafed.graphs import Edge
from sheafed.linalg.identifiability import identifiability, numerical_rank
from sheafed.linalg.procrustes import misalignment, procrustes
from sheafed.linalg.support import Support, whitening_on, whole_space
from sheafed.linalg.whitening import Shrinkage, Whitening
from sheafed.sheaf.network_sheaf import NetworkSheaf

WhiteningSource = Literal["pilots", "private"]


def align(
    latents: Mapping[str, Array],
    graph: nx.Graph[str] | Iterable[tuple[str, str]] | None = None,
    whitening: WhiteningSource | None = "pilots",
    shrinkage: Shrinkage = "auto",
    private: Mapping[str, Array] | None = None,
    maps: Maps = "auto",
    goal: Goal = "read",
    joint: bool = False,
) -> Alignment:
    """Align the latent spaces of encoders that exist already; nothing is trained.

    >>> import numpy as np
    >>> ada = np.random.default_rng(0).standard_normal((100, 3))
    >>> bo = 2 * ada[:, ::-1] + 1  # the same pilots, encoded otherwise
    >>> alignment = align({"ada": ada, "bo": bo})
    >>> np.allclose(alignment.send(ada, "ada", "bo"), bo)
    True

    Args:
        latents: for each agent the latents `(K, d)` of the same K pilots in the same order. A row
            of NaN stands for a pilot that the agent has not encoded. Copies of a pilot are left
            out, with a `RepeatedPilotsWarning`.
        graph: the neighbours, as a networkx graph or a list of edges; all pairs by default. Pairs
            with too few pilots in common are left out, with a `MissingPilotsWarning`.
        whitening: fit the whitening of isometries to the pilots, or to each agent's own `private`
            latents, or leave it out (None). Private data that are shifted between agents make it
            a poor reference.
        shrinkage: how far covariances are shrunk before whitening, 0 to 1. With `"auto"` held-out
            pilots choose that of each map, and the sheaf has the Ledoit-Wolf optimum.
        private: with `whitening="private"`, each agent's latents `(n, d)` of its own data.
        maps: the kind of map: `"procrustes"` (an isometry of white latents), `"rescaled-ridge"`,
            `"ridge"`, `"affine"` (least squares), `"low-rank"`, `"canonical"` or `"joint"`. With
            `"auto"` held-out pilots choose for each direction of each edge; rescaled ridge unless
            another kind is clearly better. Where the best all find every pilot, the least residual
            decides.
        goal: what maps are chosen for. `"read"`: the receiver's head reads the latents; the rank of
            the right pilot counts, by the cosine and by that in standard units. `"match"`: the
            receiver looks for the nearest of its own latents by the cosine. `"search"`: mapped
            latents are an index, which the receiver's own latents search by the cosine.
        joint: let maps through the common space of all agents compete, fitted to all pilots that
            each agent has; `maps="joint"` takes no others. Pairs without common pilots stay, with
            such a map, of the options that do best elsewhere; nothing judges it.
    """
    check_goal(goal)
    if maps not in ("auto", *get_args(KindName)):
        raise InputError(f"maps must be 'auto' or one of {list(get_args(KindName))}, got {maps!r}")
    if not isinstance(latents, Mapping):
        raise InputError(
            f"latents must be a mapping from names to arrays, got {type(latents).__name__}; write "
            '{"paris": a, "oslo": b}'
        )
    if len(latents) < 2:
        raise EmptyInputError(f"alignment needs at least two agents, got {list(latents)}")
    for name in latents:
        if not isinstance(name, str) or not name:
            raise InputError(f"the name of an agent must be a non-empty string, got {name!r}")
    table = pilot_table(latents)
    pilots = {name: table.own(name) for name in table.latents}
    joint = joint or maps == "joint"
    network = _network(graph, sorted(pilots))
    if not joint:
        network = _with_common_pilots(network, table)
    supports = {name: table.encoded(name, rows).support for name, rows in table.present.items()}
    for name, found in supports.items():
        check_varies(name, found)
    references = _references(pilots, supports, whitening, private)
    spaces = {name: space for name, (space, _) in references.items()}
    amount = 0.0 if whitening is None else shrinkage
    kinds = [] if maps == "joint" else kinds_of(maps, amount)
    whitenings = {
        name: whitening_on(space, amount, data) for name, (space, data) in references.items()
    }
    dims = {name: x.shape[-1] for name, x in pilots.items()}
    edges = graphs.orient(network, dims)
    whitened_on = None if whitening == "pilots" else spaces
    chosen = choose_maps(edges, table, whitened_on, kinds, goal, joint=joint)
    isometries = {}
    fits = []
    for edge in edges:
        there = chosen[edge.head, edge.tail]
        isometries[edge], fit = _isometry(edge, _common(edge, table, there), whitenings)
        fits.append(fit if there.held_out.residuals else replace(fit, misalignment=None))
    _warn_undetermined(fits, pilots=len(table))
    return Alignment(
        sheaf=NetworkSheaf(network, dims, isometries),
        whitenings=whitenings,
        fits=tuple(fits),
        maps={pair: choice.map for pair, choice in chosen.items()},
        pairs=tuple(
            pair_fit(pair, choice, int(table.common(*pair).sum()))
            for pair, choice in chosen.items()
        ),
        goal=goal,
        fingerprints={name: fingerprint(pilots[name], supports[name]) for name in pilots},
    )


def _common(edge: Edge, table: PilotTable, there: Choice[Kind]) -> dict[str, Tensor]:
    """Return the latents of the pilots that the ends of an edge have in common.

    Where they have too few, those of the tail are what the map makes of the head's.
    """
    if there.held_out.residuals:
        rows = table.common(*edge)
        return {name: table.latents[name][rows] for name in edge}
    head = table.own(edge.head)
    return {edge.head: head, edge.tail: there.map.transform(head)}


def _isometry(
    edge: Edge, pilots: Mapping[str, Tensor], whitenings: Mapping[str, Whitening]
) -> tuple[Tensor, EdgeFit]:
    head, tail = (whitenings[name].whiten(pilots[name].double()) for name in edge)
    with warnings.catch_warnings():
        # One warning of `align` names all such edges.
        warnings.simplefilter("ignore", UndeterminedMapWarning)
        isometry = procrustes(head, tail)
    misfit = misalignment(head, tail @ isometry.mT)
    if misfit is None:
        raise RankError(
            f"the latents of {edge.head!r} and {edge.tail!r} are all zero; check the encoders"
        )
    # Of the latents as they were given: in float64, and whitened, their rounding looks like data.
    ranks = (
        numerical_rank(pilots[edge.head], whitenings[edge.head].mean),
        numerical_rank(pilots[edge.tail], whitenings[edge.tail].mean),
    )
    precision = _precision(pilots[edge.head], pilots[edge.tail])
    judged = identifiability(head, tail, ranks=ranks, precision=precision)
    fit = EdgeFit(
        head=edge.head,
        tail=edge.tail,
        d_head=head.shape[-1],
        d_tail=tail.shape[-1],
        misalignment=misfit,
        rank=judged.rank_cross,
        gap=judged.gap,
    )
    return isometry, fit


def _precision(*given: Tensor) -> torch.dtype:
    """Return that of the sums behind latents; those of half precision were summed in float32."""
    double = all(x.dtype == torch.float64 for x in given)
    return torch.float64 if double else torch.float32


def _network(
    graph: nx.Graph[str] | Iterable[tuple[str, str]] | None, names: Sequence[str]
) -> nx.Graph[str]:
    if graph is None:
        return graphs.complete(names)
    network = graph if isinstance(graph, nx.Graph) else graphs.from_edges(graph, names)
    graphs.check_graph(network, names)
    return network


def _with_common_pilots(network: nx.Graph[str], table: PilotTable) -> nx.Graph[str]:
    """Leave out the edges for which no map could be fitted and judged; the rest must be joined."""
    missing = [edge for edge in network.edges if not table.judging_folds(*edge)]
    if not missing:
        return network
    kept: nx.Graph[str] = nx.Graph(network)
    kept.remove_edges_from(missing)
    if not nx.is_connected(kept):
        parts = sorted(sorted(part) for part in nx.connected_components(kept))
        raise MissingPilotsError(
            f"{table.too_few_common(missing)}; without these edges nothing relates the latents of "
            f"{parts}; encode more of the same pilots, or align with joint=True, which needs those "
            "of some pairs only"
        )
    warnings.warn(
        f"{table.too_few_common(missing)}; these edges are left out, and latents take a path of "
        "others; encode more of the same pilots to have a map",
        MissingPilotsWarning,
        stacklevel=3,
    )
    return kept


def _references(
    pilots: Mapping[str, Tensor],
    supports: Mapping[str, Support],
    whitening: WhiteningSource | None,
    private: Mapping[str, Array] | None,
) -> dict[str, tuple[Support, Tensor]]:
    """Return for each agent the support to whiten on, and the latents that it is the support of."""
    if (private is not None) != (whitening == "private"):
        raise InputError(
            f"private latents go with whitening='private'; got whitening={whitening!r} and "
            f"{'no ' if private is None else ''}private latents"
        )
    if whitening is None:
        return {name: (whole_space(x.shape[-1]), x) for name, x in pilots.items()}
    if whitening == "pilots":
        return {name: (supports[name], x) for name, x in pilots.items()}
    if private is None:
        raise InputError(f"whitening must be 'pilots', 'private' or None, got {whitening!r}")
    if set(private) != set(pilots):
        raise GraphError(
            f"private latents are needed of {sorted(pilots)}, got those of {sorted(private)}"
        )
    found = {}
    for name, x in private.items():
        own = as_pilots(f"the private latents of {name!r}", x)
        if own.shape[-1] != pilots[name].shape[-1]:
            raise ShapeError(
                f"the private latents of {name!r} must be (n, {pilots[name].shape[-1]}), got "
                f"{tuple(own.shape)}"
            )
        found[name] = (varying_support(name, own), own)
    return found


def _warn_undetermined(fits: Sequence[EdgeFit], pilots: int) -> None:
    loose = [f for f in fits if f.undetermined_dimension]
    if loose:
        named = ", ".join(
            f"{f.tail} -> {f.head} on {f.undetermined_dimension} of {f.d_tail} dimensions"
            for f in loose
        )
        warnings.warn(
            f"{pilots} pilots leave the isometries of {len(loose)} of {len(fits)} edges "
            f"undetermined on a subspace ({named}), on which round trips and maps of the kind "
            "procrustes are arbitrary, other maps are not; use more pilots, or look for dead "
            "latent units",
            UndeterminedMapWarning,
            stacklevel=3,
        )
