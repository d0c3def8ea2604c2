"""Run every method and protocol briefly and keep the figures: a refactoring must not change them.

    python benchmarks/same_figures.py record before.json
    python benchmarks/same_figures.py record after.json      # after the change
    python benchmarks/same_figures.py compare before.json after.json

Digits with seeds 0 and 1, and the MNIST pair on 2 % of its training data. Figures are compared bit
for bit; times and memory are left out. Names in the headers of messages count in `bytes_sent`: if
they change, `--without bytes_sent` compares the rest, `payload_bytes` included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FULL = ("method.exchange_every=1", "method.quantisation=none")
PAIR = ("model.family=pair", "model.bottleneck=16", "graph.kind=complete")
DIGITS = ("training.epochs=3", "training.evaluate_every=1", "data.train_fraction=0.4")

SHEAF_FRL = {
    "default": ("method.exchange_every=8", "method.quantisation=int8"),
    "full": FULL,
    "half": ("method.exchange_every=1", "method.quantisation=float16"),
    "distillation": (*FULL, "method.distillation={}"),
    "consensus": (*FULL, "method.distillation={kind='consensus'}"),
    "rare distillation": (
        "method.exchange_every=3",
        "method.quantisation=int8",
        "method.distillation={confidence=0.5}",
    ),
    "strict": (*FULL, "method.privacy=strict"),
    "homogeneous": (*FULL, *PAIR),
    "strict homogeneous": (*FULL, *PAIR, "method.privacy=strict"),
    "maps from all pilots": (*FULL, "method.maps={source='all', every='epoch'}"),
    "maps of a round": (*FULL, "method.maps={source='round', every=2}"),
    "swbn": (*FULL, "method.whitening={kind='swbn', shrinkage=0.1}"),
    "no whitening": (*FULL, "method.whitening={kind='none'}"),
    "warm-up": (*FULL, "method.penalty={kind='warm-up', value=0.1, rounds=5}"),
    "dual ascent": (*FULL, "method.penalty={kind='dual-ascent', tolerance=0.1}"),
    "channel": (*FULL, "method.channel={snr_db=5, bits=6, erasure=0.1}"),
    "edge stalks": (*FULL, "method.edge_dim=8", "method.distillation={}"),
    "noise": (*FULL, "method.noise={epsilon=4}", "method.distillation={}"),
    "vicreg": (*FULL, "model.objectives={ada='vicreg', bo='autoencoding', cy='simclr'}"),
    "pseudo-labels": (*FULL, "model.objective=pseudo-labels"),
    "unlabelled": (*FULL, "model.unlabelled=['ada']", "model.objectives={ada='simclr'}"),
}
BASELINES = {
    "non-cooperative": ("method.name=non-cooperative",),
    "non-cooperative private": ("method.name=non-cooperative", "method.whitening=private"),
    "consensus distillation": ("method.name=consensus-distillation",),
    "comfed": ("method.name=comfed",),
    "sheaf-fmtl": ("method.name=sheaf-fmtl",),
    "fedproto ema": ("method.name=fedproto", "method.aggregation=ema", *PAIR),
    "fedproto mean": ("method.name=fedproto", "method.aggregation=mean", *PAIR),
    "fedmuscle": ("method.name=fedmuscle", "method.local_epochs=1", *PAIR),
    "fedmuscle pairwise": (
        "method.name=fedmuscle",
        "method.local_epochs=1",
        "method.alignment=pairwise",
        *PAIR,
    ),
}
PARTITIONS = {
    "iid": (*FULL, "data.partition=iid", "graph.kind=ring"),
    "dirichlet": (*FULL, "data.partition=dirichlet", "graph.kind=erdos-renyi"),
    "shards": (*FULL, "data.partition=shards", "data.pilot_classes=all", "graph.kind=star"),
    "adam": (
        *FULL,
        "training.optimizer=adam",
        "training.learning_rate=0.001",
        "training.max_grad_norm=1.0",
    ),
}
MNIST = {
    "sheaf-frl": FULL,
    "distillation": (*FULL, "method.distillation={}"),
    "strict": (*FULL, "method.privacy=strict"),
    "non-cooperative": ("method.name=non-cooperative",),
    "comfed": ("method.name=comfed", "method.projection=16"),
    "sheaf-fmtl": ("method.name=sheaf-fmtl",),
    "fedproto": ("method.name=fedproto", "method.aggregation=ema"),
    "fedmuscle": ("method.name=fedmuscle", "method.local_epochs=1"),
}
MNIST_PAIR = (
    "model.bottleneck=16",
    "data.train_fraction=0.02",
    "data.pilot_fraction=0.01",
    "training.epochs=2",
)

LEFT_OUT = {"seconds", "peak_memory_bytes"}
RENAMED = {
    "communication_ceiling": "oracle_accuracy",
    "ceiling": "oracle_accuracy",
    "belief_loss": "distillation_loss",
}
"""Keys of records and summaries that have another name now."""


def runs() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of every run with its command line."""
    for seed in (0, 1):
        for name, overrides in (SHEAF_FRL | BASELINES | PARTITIONS).items():
            yield f"digits, {name}, seed {seed}", ["digits", *_flags((*DIGITS, *overrides), seed)]
        for name, overrides in MNIST.items():
            yield f"mnist, {name}, seed {seed}", ["pair", *_flags((*MNIST_PAIR, *overrides), seed)]
    processes = ["--processes", "2", *_flags((*DIGITS, *SHEAF_FRL["distillation"]), 0)]
    yield "two processes", ["digits", *processes]


def _flags(overrides: tuple[str, ...], seed: int) -> list[str]:
    # The preset's own distillation is switched off by naming the method anew.
    named = any(override.startswith("method.name=") for override in overrides)
    first = () if named else ("method.name=non-cooperative", "method.name=sheaf-frl")
    flags = [word for override in (*first, *overrides) for word in ("--set", override)]
    return [*flags, "--seed", str(seed)]


def record(out: Path, jobs: int, only: str) -> None:
    """Run everything and write its records."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:

        def run(item: tuple[int, tuple[str, list[str]]]) -> tuple[str, Any]:
            number, (name, arguments) = item
            directory = Path(scratch) / str(number)
            command = [sys.executable, "-m", "sheafed", "run", *arguments, "--out", str(directory)]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
            print(name, "" if done.returncode == 0 else done.stderr[-800:], flush=True)
            return name, figures(directory) if done.returncode == 0 else None

        chosen = [item for item in runs() if only in item[0]]
        found = dict(pool.map(run, enumerate(chosen)))
    out.write_text(json.dumps(found, indent=1), encoding="utf-8")


def figures(directory: Path) -> dict[str, Any]:
    """Return what a run has written, without times."""
    records = (directory / "metrics.jsonl").read_text().splitlines()
    summary = json.loads((directory / "summary.json").read_text())
    return {
        "metrics": [json.loads(line) for line in records],
        "summary": {key: value for key, value in summary.items() if key not in LEFT_OUT},
    }


def compare(before: Path, after: Path, without: set[str]) -> int:
    """Print every difference, except of some keys; return how many runs differ."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    differing = 0
    for name in sorted({*old, *new}):
        found = list(differences(_renamed(old.get(name)), new.get(name), name, without))
        differing += bool(found)
        for line in found[:5]:
            print(line)
    print(f"{len(old)} runs before, {len(new)} after, {differing} differ")
    return differing


def differences(old: Any, new: Any, where: str, without: set[str]) -> Iterator[str]:
    """Yield where two trees differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - without):
            yield from differences(old.get(key), new.get(key), f"{where}: {key}", without)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{where}[{number}]", without)
    elif old != new:
        yield f"{where}: {old!r:.80} before, {new!r:.80} after"


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {RENAMED.get(key, key): _renamed(inner) for key, inner in value.items()}
    return [_renamed(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--jobs", type=int, default=2)
    recording.add_argument("--only", default="", help="runs whose name contains this")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--without", nargs="*", default=[], help="keys to leave out")
    given = parser.parse_args()
    if given.command == "record":
        record(given.out, given.jobs, given.only)
    else:
        sys.exit(compare(given.before, given.after, set(given.without)) > 0)


if __name__ == "__main__":
    main()
