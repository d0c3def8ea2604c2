"""Compare the two routes of `polar_factor`, interleaved in one run on one thread.

python benchmarks/procrustes.py --repeats 30 --seed 0
"""

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sheafed.linalg import polar_factor

SHAPES = ((64, 64), (128, 64), (160, 160), (256, 144), (256, 256))
ROUTES = ("svd", "gram")


def well_conditioned(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Make a float32 cross-covariance whose singular values lie between 0.1 and 1."""
    left, right = (
        torch.linalg.qr(torch.randn(n, columns, generator=generator, dtype=torch.float64))[0]
        for n in (rows, columns)
    )
    spectrum = torch.logspace(0, -1, columns, dtype=torch.float64)
    return ((left * spectrum) @ right.mT).float()


def measure(m: Tensor, repeats: int) -> dict[str, list[float]]:
    """Time both routes in turn, `repeats` times, after one round that is not counted."""
    times: dict[str, list[float]] = {route: [] for route in ROUTES}
    for round_ in range(repeats + 1):
        for route in ROUTES if round_ % 2 else ROUTES[::-1]:
            start = time.perf_counter()
            polar_factor(m, route=route)
            if round_:
                times[route].append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30, help="timed calls of each route")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {arguments.repeats}")
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(arguments.seed)

    table = Table(
        title=f"polar_factor, float32, one thread, {arguments.repeats} interleaved repeats",
        caption="svd / gram: median ratio of times; errors: largest, against the float64 SVD",
    )
    for heading in ("shape", "svd ms", "gram ms", "svd / gram", "svd error", "gram error"):
        table.add_column(heading, justify="right")
    for rows, columns in SHAPES:
        m = well_conditioned(rows, columns, generator)
        times = measure(m, arguments.repeats)
        ratios = [slow / fast for slow, fast in zip(times["svd"], times["gram"], strict=True)]
        exact = polar_factor(m.double())
        errors = [float((polar_factor(m, route=r).double() - exact).abs().max()) for r in ROUTES]
        table.add_row(
            f"{rows} x {columns}",
            *(f"{statistics.median(times[route]):.2f}" for route in ROUTES),
            f"{statistics.median(ratios):.2f}",
            *(f"{error:.1e}" for error in errors),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
