"""The time of `sheafed.align` over that of the decompositions and products within it.

Both by the profiler, in one run and one thread, so that a busy machine slows both alike.
"""

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity, profile

import sheafed

KERNELS = ("svd", "eigh", "mm", "qr", "cholesky", "solve", "lstsq")
"""Parts of the names of PyTorch's operations that are linear algebra."""


def encoders(pilots: int, dim: int) -> dict[str, NDArray[np.float32]]:
    """Return the latents of two noisy nonlinear views of the same inputs."""
    inputs = np.random.default_rng(0).standard_normal((pilots, dim // 2))

    def view(seed: int) -> NDArray[np.float32]:
        random = np.random.default_rng(seed)
        mixed = inputs @ random.standard_normal((dim // 2, dim)) / np.sqrt(dim / 2)
        noisy: NDArray[np.float32] = np.tanh(mixed) + 0.05 * random.standard_normal((pilots, dim))
        return noisy.astype(np.float32)

    return {"ada": view(1), "bo": view(2)}


def measure(pilots: int, dim: int, maps: str) -> tuple[float, float]:
    """Return the seconds of an alignment, and those of its linear algebra."""
    latents = encoders(pilots, dim)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        sheafed.align(latents, maps=maps)  # type: ignore[arg-type]
        elapsed = time.perf_counter() - began
    kernels = sum(
        row.self_cpu_time_total
        for row in profiler.key_averages()
        if any(kernel in row.key for kernel in KERNELS)
    )
    return elapsed, kernels / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 768, 1024])
    parser.add_argument("--pilots", type=int, default=1500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    encoded = {name: latents[:, :16] for name, latents in encoders(60, 32).items()}
    sheafed.align(encoded)  # loads what is loaded on first use
    print("| d | maps | seconds | of linear algebra | ratio |")
    print("|---|---|---|---|---|")
    for dim in arguments.dims:
        for maps in ("procrustes", "auto"):
            elapsed, kernels = measure(arguments.pilots, dim, maps)
            ratio = f"{elapsed / kernels:.2f}"
            print(f"| {dim} | {maps} | {elapsed:.1f} | {kernels:.1f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
