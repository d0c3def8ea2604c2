"""`sheafed send` on large files: CPU time against the plain matrix product, and its peak memory.

    python benchmarks/send_throughput.py --rows 1000000

Rows per CPU second of three tasks that read a memory-mapped .npy file and write another, part by
part, in turn, so that a busy machine slows all alike: the product `z @ W.T + b` in float32, the
same in float64, and the map of an alignment, which computes in float64 and checks what it reads
and writes. Then `sheafed send` itself, in a process of its own: the peak of its anonymous memory,
which files that are mapped into memory are no part of.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

import sheafed
from sheafed.alignment.affine_map import CHUNK
from sheafed.bench.measurement import interleaved

PILOTS = 300
WATCHED = 0.05  # seconds


def write_rows(path, rows, d, dtype):
    """Write latents to a file, part by part."""
    rng = np.random.default_rng(1)
    out = np.lib.format.open_memmap(path, "w+", dtype, (rows, d))
    for start in range(0, rows, CHUNK):
        out[start : start + CHUNK] = rng.standard_normal((min(CHUNK, rows - start), d))
    out.flush()


def plain(path, out, weight, bias):
    """The product in the dtype of the weight, with as much reading and writing."""
    given = np.load(path, mmap_mode="r")
    with out.open("wb") as file:
        for start in range(0, len(given), CHUNK):
            part = given[start : start + CHUNK].astype(weight.dtype) @ weight.T + bias
            file.write(part.astype(given.dtype).tobytes())


def mapped(path, out, link):
    given = np.load(path, mmap_mode="r")
    with out.open("wb") as file:
        for _, part in link.chunks(given):
            file.write(part.tobytes())


def peak_of_send(arguments):
    """Run `sheafed send`; return its peak of anonymous memory in bytes, and its seconds."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "sheafed", "send", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status, peak = Path(f"/proc/{process.pid}/status"), 0
        while process.poll() is None:
            text = status.read_text(encoding="ascii")
            lines = dict(line.split(":", 1) for line in text.splitlines())
            peak = max(peak, int(lines.get("RssAnon", "0 kB").split()[0]) * 1024)
            time.sleep(WATCHED)
    if process.returncode:
        raise SystemExit(f"sheafed send ended with code {process.returncode}")
    return peak, time.perf_counter() - began


def measure(d, dtype, rows, timed, repeats, directory):
    rng = np.random.default_rng(0)
    pilots = rng.standard_normal((PILOTS, d))
    latents = {"old": pilots, "new": pilots @ rng.standard_normal((d, d)) / d**0.5}
    fitted = sheafed.align(latents, maps="ridge")
    fitted.save(directory / "alignment")
    link = fitted.link("old", "new")
    bias = link.value - link.weight @ link.centre
    weights = {
        f"plain product, {kind}": (link.weight.numpy().astype(kind), bias.numpy().astype(kind))
        for kind in ("float32", "float64")
    }
    z, out = directory / "z.npy", directory / "out.npy"
    write_rows(z, timed, d, dtype)
    tasks = {
        name: lambda weight=weight, bias=bias: plain(z, out, weight, bias)
        for name, (weight, bias) in weights.items()
    }
    tasks["send"] = lambda: mapped(z, out, link)
    seconds = {name: median(found) for name, found in interleaved(tasks, repeats).items()}
    write_rows(z, rows, d, dtype)
    ends = ["--from", "old", "--to", "new"]
    peak, wall = peak_of_send(
        [str(z), "--alignment", str(directory / "alignment"), *ends, "--out", str(out)]
    )
    rates = {name: timed / found for name, found in seconds.items()}
    shares = [f"{rates['send'] / rates[name]:.2f}" for name in weights]
    print(
        f"| {d} | {dtype} | {rates['send']:,.0f} | {' | '.join(shares)} | "
        f"{peak / 2**20:,.0f} MiB | {wall:.0f} s |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the file that is sent")
    parser.add_argument("--timed-rows", type=int, default=20_000, help="of the comparison")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dims", type=int, nargs="+", default=[768, 1024])
    parser.add_argument("--dtypes", nargs="+", default=["float16", "float32"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"peak memory and seconds of `sheafed send` with {given.rows:,} rows")
    print("| d | dtype | rows per CPU s | of float32 | of float64 | peak memory | wall time |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as directory:
        for d in given.dims:
            for dtype in given.dtypes:
                measure(d, dtype, given.rows, given.timed_rows, given.repeats, Path(directory))


if __name__ == "__main__":
    main()
