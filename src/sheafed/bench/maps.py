"""The time to refit all maps."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.bench.measurement import Measurement, interleaved, ratios
from sheafed.bench.networks import zoo
from sheafed.errors import BenchError
from sheafed.methods import SheafFRL
from sheafed.methods.shared_solver import SharedSolver
from sheafed.methods.sheaf_frl.node import SheafFRLNode

WARM_UP = 6
"""Rounds after which only dead units leave the running cross-covariances without full rank."""
TOLERANCE = 1e-5


def map_refresh(repeats: int) -> list[Measurement]:
    """Compare a refresh of the 42 edges with one SVD per endpoint, on problems of a training."""
    given = [problem for endpoints in problems() for problem in endpoints]
    solver = SharedSolver()
    seconds = interleaved(
        {
            "refresh": lambda: [solver(m, previous) for m, previous in given],
            "svd": lambda: [by_svd(m) for m, _ in given],
        },
        repeats,
    )
    maps = [(m, solver(m, previous)) for m, previous in given]
    difference = max(float((v - by_svd(m)).abs().max()) for m, v in maps if is_determined(m))
    if difference > TOLERANCE:
        raise BenchError(
            f"maps differ by {difference:.1e} from those of the SVD, at most {TOLERANCE} is allowed"
        )
    raw = {
        **seconds,
        "largest difference of determined maps": difference,
        "largest shortfall of tr(V^T M)": max(_shortfall(m, v) for m, v in maps),
        "endpoints": len(given),
    }
    what = "a refresh of all maps over one SVD per endpoint"
    return [Measurement.of_turns(5, what, 0.25, ratios(seconds, "refresh", "svd"), raw=raw)]


def problems() -> list[list[tuple[Tensor, Tensor]]]:
    """Return, for each edge, the problems of its two endpoints after some rounds of training.

    A problem is a cross-covariance and the previous map; they are the same at both endpoints.
    """
    network = zoo(SheafFRL())
    for _ in range(WARM_UP):
        network.step()
    nodes = {name: n for name, n in network.nodes.items() if isinstance(n, SheafFRLNode)}
    return [
        [
            (nodes[a].map_updates.running[b], nodes[a].endpoints[b].map)
            for a, b in (edge, edge[::-1])
        ]
        for edge in network.graph.edges
    ]


def is_determined(m: Tensor) -> bool:
    """Whether a cross-covariance has full rank, so that its map is unique."""
    return int(torch.linalg.matrix_rank(m)) == m.shape[-1]


def by_svd(m: Tensor) -> Tensor:
    u, _, wt = torch.linalg.svd(m, full_matrices=False)
    product: Tensor = u @ wt
    return product


def _shortfall(m: Tensor, v: Tensor) -> float:
    r"""Return the relative shortfall of $\operatorname{tr}(V^T M)$ from its maximum."""
    best = torch.linalg.svdvals(m.double()).sum()
    return float(1 - (v.double() * m.double()).sum() / best)
