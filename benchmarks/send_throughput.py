"""`sheafed send` on large files: CPU time against the plain matrix product, and its peak memory.

    python benchmarks/send_throughput.py --rows 1000000

CPU seconds of tasks that read a memory-mapped .npy file and write another, part by part, in turn,
so that a busy machine slows all alike: the product `z @ W.T + b` by NumPy in float32 and in
float64, and what `sheafed send` does with the file. *whitening* is a map that magnifies
directions in which the latents hardly vary (1 to 1e-6), so that `send` needs float64. With
`--rows`, also `sheafed send` itself in a process of its own: its CPU seconds over those of the
plain product, and the peak of its anonymous memory, which files that are mapped into memory are no
part of.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

import sheafed
from sheafed.alignment import AffineMap
from sheafed.alignment.affine_map import CHUNK
from sheafed.atomic_io import written_atomically
from sheafed.bench.measurement import interleaved, ratios
from sheafed.cli.align import _send_file

PILOTS = 300
SMALLEST = 1e-6
WATCHED = 0.05  # seconds
# Of a timed turn in float32: some 0.2 to 2 CPU seconds.
MULTIPLICATIONS = 1e10


def write_rows(path, rows, d, dtype, factor=None):
    """Write latents to a file, part by part."""
    rng = np.random.default_rng(1)
    out = np.lib.format.open_memmap(path, "w+", dtype, (rows, d))
    for start in range(0, rows, CHUNK):
        part = rng.standard_normal((min(CHUNK, rows - start), d), dtype=np.float32)
        out[start : start + CHUNK] = part if factor is None else part @ factor
    out.flush()


def plain(path, out, weight, bias):
    """The product in the dtype of the weight, with as much reading and writing."""
    given = np.load(path, mmap_mode="r")
    with written_atomically(out) as file:
        for start in range(0, len(given), CHUNK):
            part = np.asarray(given[start : start + CHUNK], weight.dtype) @ weight.T
            part += bias
            file.write(np.asarray(part, given.dtype).data)


def weights(link):
    bias = link.value - link.weight @ link.centre
    return {
        kind: (link.weight.numpy().astype(kind), bias.numpy().astype(kind))
        for kind in ("float32", "float64")
    }


def whitening(d):
    """Return a factor of latents, and a map that undoes it."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    deviations = np.geomspace(1, SMALLEST, d)
    zero = torch.zeros(d, dtype=torch.float64)
    factor = (deviations[:, None] * basis.T).astype(np.float32)
    return factor, AffineMap(torch.as_tensor(basis.T / deviations[:, None]), zero, zero)


def fit(d):
    rng = np.random.default_rng(0)
    pilots = rng.standard_normal((PILOTS, d))
    latents = {"old": pilots, "new": pilots @ rng.standard_normal((d, d)) / d**0.5}
    return sheafed.align(latents, maps="ridge")


def any_map(d):
    """Return a map of full rank; what is fitted takes the same time."""
    rng = np.random.default_rng(0)
    drawn = (rng.standard_normal(shape) for shape in ((d, d), d, d))
    return AffineMap(*(torch.as_tensor(part) for part in drawn))


def compare(name, link, d, dtype, options, directory, factor=None):
    z, out = directory / "z.npy", directory / "out.npy"
    rows = options.timed_rows or max(2 * CHUNK, round(MULTIPLICATIONS / d**2))
    write_rows(z, rows, d, dtype, factor)
    given = np.load(z, mmap_mode="r")
    tasks = {
        kind: lambda weight=weight, bias=bias: plain(z, out, weight, bias)
        for kind, (weight, bias) in weights(link).items()
    }
    tasks["send"] = lambda: _send_file(link, given, out)
    seconds = interleaved(tasks, options.repeats)
    rate = len(given) / median(seconds["send"])
    shares = [f"{median(ratios(seconds, 'send', kind)):.2f}" for kind in ("float32", "float64")]
    print(f"| {d} | {name} | {dtype} | {rate:,.0f} | {' | '.join(shares)} |", flush=True)


def send_whole(d, dtype, rows, directory):
    """Run `sheafed send` in a process of its own, and the plain product here."""
    fitted = fit(d)
    fitted.save(directory / "alignment")
    z, out = directory / "z.npy", directory / "out.npy"
    write_rows(z, rows, d, dtype)
    began = time.process_time()
    plain(z, out, *weights(fitted.link("old", "new"))["float32"])
    expected = time.process_time() - began
    ends = ["--alignment", str(directory / "alignment"), "--from", "old", "--to", "new"]
    peak, used = watched(["send", str(z), *ends, "--out", str(out)])
    print(f"| {d} | {dtype} | {used / expected:.2f} | {peak / 2**20:,.0f} MiB |", flush=True)


def watched(arguments):
    """Run a command; return its peak of anonymous memory in bytes, and its CPU seconds."""
    process = os.posix_spawn(
        sys.executable, [sys.executable, "-m", "sheafed", *arguments], os.environ
    )
    peak = 0
    while True:
        ended, code, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        lines = dict(line.split(":", 1) for line in text.splitlines())
        peak = max(peak, int(lines.get("RssAnon", "0 kB").split()[0]) * 1024)
        time.sleep(WATCHED)
    if code:
        raise SystemExit(f"sheafed send ended with status {code}")
    return peak, usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dims", type=int, nargs="*", default=[384, 768, 1024, 2048, 4096])
    parser.add_argument("--timed-rows", type=int, help="of a turn; by default more for small d")
    parser.add_argument("--dtypes", nargs="+", default=["float16", "float32", "float64"])
    parser.add_argument("--rows", type=int, help="of files that `sheafed send` is measured with")
    parser.add_argument("--whole-dims", type=int, nargs="+", default=[384, 768])
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as directory:
        place = Path(directory)
        print("| d | map | latents | rows per CPU s | times float32 | times float64 |")
        print("|---|---|---|---|---|---|")
        for d in given.dims:
            for dtype in given.dtypes:
                compare("any", any_map(d), d, dtype, given, place)
            if d <= 1024 and "float32" in given.dtypes:
                factor, link = whitening(d)
                compare("whitening", link, d, "float32", given, place, factor)
        if given.rows:
            print(f"\n`sheafed send` of {given.rows:,} rows, all of its process")
            print("| d | latents | times float32 | peak memory |")
            print("|---|---|---|---|")
            for d in given.whole_dims:
                send_whole(d, "float32", given.rows, place)


if __name__ == "__main__":
    main()
