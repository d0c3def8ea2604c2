"""What it costs to refit all maps."""

from __future__ import annotations

import torch
from torch import Tensor

from sheafed.experiments.bench.measurement import Measurement, interleaved, ratio
from sheafed.experiments.bench.networks import zoo
from sheafed.methods import SheafFRL
from sheafed.methods.maps import SharedSolver
from sheafed.methods.sheaf_node import SheafNode

WARM_UP = 6
"""Rounds, after which only dead units leave the running cross-covariances without full rank."""


def map_refresh(repeats: int) -> list[Measurement]:
    """Compare a refresh of the 42 edges with one SVD per edge end, on problems of a training."""
    network = zoo(SheafFRL())
    for _ in range(WARM_UP):
        network.step()
    problems = [
        (node.fits.running[neighbour], node.ends[neighbour].map)
        for node in network.nodes.values()
        if isinstance(node, SheafNode)
        for neighbour in node.neighbours
    ]
    solver = SharedSolver()
    seconds = interleaved(
        {
            "refresh": lambda: [solver(m, previous) for m, previous in problems],
            "svd": lambda: [_by_svd(m) for m, _ in problems],
        },
        repeats,
    )
    shortfall = max(_shortfall(m, solver(m, previous)) for m, previous in problems)
    what = "a refresh of all maps over one SVD per edge end"
    raw = {**seconds, "largest shortfall of tr(V^T M)": shortfall, "ends": len(problems)}
    return [Measurement(5, what, 0.25, ratio(seconds, "refresh", "svd"), raw=raw)]


def _shortfall(m: Tensor, v: Tensor) -> float:
    """Return by how much, relatively, a map misses the optimum; undetermined parts do not count."""
    best = torch.linalg.svdvals(m.double()).sum()
    return float(1 - (v.double() * m.double()).sum() / best)


def _by_svd(m: Tensor) -> Tensor:
    u, _, wt = torch.linalg.svd(m, full_matrices=False)
    product: Tensor = u @ wt
    return product
