"""Compare ways to solve the Procrustes problems of a training, interleaved on one thread.

python benchmarks/shared_solvers.py --repeats 10
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sheafed.bench.maps import by_svd, is_determined, problems
from sheafed.bench.measurement import interleaved, ratios
from sheafed.linalg import polar_factor

LOWEST = 1e-4
"""QDWH has to be told a lower bound of the singular values, relative to the largest."""
CONVERGED = 1e-5
MOST = 60

Solver = Callable[[Tensor], Tensor]


def by_gram(m: Tensor) -> Tensor:
    """M (M^T M)^(-1/2), squaring the condition; undetermined directions are left out."""
    values, vectors = torch.linalg.eigh(m.mT @ m)
    kept = values > values[-1] * (len(m) * torch.finfo(torch.float32).eps) ** 2
    roots = torch.where(kept, values.clamp_min(1e-300).rsqrt(), 0)
    return ((m @ vectors) * roots) @ vectors.mT


def by_newton_schulz(m: Tensor) -> Tensor:
    """Products only: X (15 - 10 X^T X + 3 (X^T X)^2) / 8, from below the largest singular value."""
    x = m / (m.mT @ m).norm().sqrt()
    for _ in range(MOST):
        gram = x.mT @ x
        x = x @ (1.875 * torch.eye(len(gram)) - 1.25 * gram + 0.375 * gram @ gram)
        if float((gram.diagonal() - 1).abs().max()) < CONVERGED:
            break
    return x


def by_qdwh(m: Tensor) -> Tensor:
    """Halley's iteration with dynamic weights, by Cholesky factors, in float64."""
    x = m.double()
    x = x / (x.mT @ x).norm().sqrt()
    low = LOWEST
    identity = torch.eye(x.shape[-1], dtype=x.dtype)
    while 1 - low > CONVERGED:
        d = (4 * (1 - low**2) / low**4) ** (1 / 3)
        a = (1 + d) ** 0.5 + 0.5 * (8 - 4 * d + 8 * (2 - low**2) / (low**2 * (1 + d) ** 0.5)) ** 0.5
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(identity + c * (x.mT @ x)))
        x = (b / c) * x + (a - b / c) * (x @ inverse)
        low = low * (a + b * low**2) / (1 + c * low**2)
    return x


SOLVERS: dict[str, Solver] = {
    "SVD, float32": by_svd,
    "Gram matrix, float64": lambda m: by_gram(m.double()),
    "Gram matrix, float32": by_gram,
    "Newton-Schulz, float32": by_newton_schulz,
    "QDWH, float64": by_qdwh,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="timed turns of each solver")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {arguments.repeats}")
    torch.set_num_threads(1)
    given = [m for (m, _), _ in problems()]
    determined = [m for m in given if is_determined(m)]
    exact = [polar_factor(m.double()) for m in determined]
    conditions = [float(torch.linalg.cond(m.double())) for m in determined]

    endpoints = "an SVD per endpoint"
    tasks = {name: lambda solve=solve: [solve(m) for m in given] for name, solve in SOLVERS.items()}
    tasks[endpoints] = lambda: [by_svd(m) for m in given for _ in range(2)]
    seconds = interleaved(tasks, arguments.repeats)
    table = Table(
        title=f"{len(given)} edges, {len(determined)} of them determined, with a median condition "
        f"of {statistics.median(conditions):.0f}",
        caption="errors: largest entry of the difference to the float64 SVD, determined edges",
    )
    for heading in ("solver", f"of {endpoints}", "median error", "largest error"):
        table.add_column(heading)
    for name, solve in SOLVERS.items():
        errors = [
            float((solve(m).double() - v).abs().max())
            for m, v in zip(determined, exact, strict=True)
        ]
        table.add_row(
            name,
            f"{statistics.median(ratios(seconds, name, endpoints)):.2f}",
            f"{statistics.median(errors):.0e}",
            f"{max(errors):.0e}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
