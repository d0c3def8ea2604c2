"""What the pilots of consensus distillation earn, and what they cost.

    python benchmarks/pilot_cost.py --out out/pilot_cost      # an hour of CPU
    python benchmarks/pilot_cost.py --out out/quick --quick   # one cell, one seed, a few rounds

One thing is changed at a time: how many pilots a step learns, whether they take the place of own
samples, how often predictions are exchanged. Figures are of validation data. CPU seconds are those
of all rounds and of fitting maps and heads once, over the same of training alone with refitted
heads; settings take turns, a few rounds each, so that a busy machine slows all of them equally. A
seed is measured in all cells before the next, each is kept, and an interrupted command continues
where it stopped.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import torch

from sheafed import ConsensusDistillation, NonCooperative
from sheafed.atomic_io import write_atomically
from sheafed.bench.networks import BenchNetwork
from sheafed.config import build_federation, read_experiment
from sheafed.evaluation import evaluate_locally
from sheafed.methods import Method
from sheafed.methods.consensus_distillation.node import ROUNDS_APART
from sheafed.sweep import markdown_table, with_deviation
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier

EIGHT_PERCENT = ("data.train_fraction=0.08", "data.pilot_fraction=0.02", "training.epochs=10")
CELLS = {
    "digits, 15 % of the data": ("digits", "data.train_fraction=0.15", "training.epochs=400"),
    "digits": ("digits",),
    "texts, s = 0.3": ("newsgroups", "data.shift=0.3"),
    "MNIST pair, d = 16": ("pair", "model.bottleneck=16", *EIGHT_PERCENT),
    "MNIST pair, d = 64": ("pair", "model.bottleneck=64", *EIGHT_PERCENT),
}
SEEDS = dict.fromkeys(CELLS, 3)
"""How many seeds a cell has."""
FIRST_SEED = 10
"""Those before it are of tables with test data."""
TURN = 5
"""Rounds of one setting before it is another's turn."""
ALONE, DEFAULT = "training alone", "default"


@dataclass(frozen=True)
class Figures:
    """What one training has reached, and what it has cost."""

    private: float
    communication: float
    cpu_seconds: float
    bytes_sent: int

    @property
    def mean(self) -> float:
        """Of both accuracies."""
        return (self.private + self.communication) / 2


Found = Mapping[str, Figures]
"""Of one seed, by setting."""


def settings(batch_size: int, rounds_per_epoch: int) -> dict[str, Method]:
    """Return what is compared.

    Args:
        batch_size: of the agents.
        rounds_per_epoch: of the network.
    """
    found: dict[str, Method] = {ALONE: NonCooperative(refit_head=True, shrinkage=0.9)}
    found[DEFAULT] = ConsensusDistillation()
    for part in (4, 2):
        count = batch_size // part
        found[f"1/{part} as many pilots"] = ConsensusDistillation(pilots_per_round=count)
    found["twice as many pilots"] = ConsensusDistillation(pilots_per_round=2 * batch_size)
    for part in (4, 2):
        found[f"pilots for 1/{part} of the batch"] = ConsensusDistillation(
            pilots_per_round=batch_size // part, pilots_in_batch=True
        )
    usual = max(ROUNDS_APART, rounds_per_epoch)
    # Named by epochs: how many rounds they have depends on the seed.
    if rounds_per_epoch < usual:
        every_epoch = ConsensusDistillation(exchange_every=rounds_per_epoch)
        found["an exchange in every epoch"] = every_epoch
    for part, times in ("half", 2), ("a quarter", 4):
        rare = ConsensusDistillation(exchange_every=times * usual)
        found[f"{part} as many exchanges"] = rare
    return found


def measure(overrides: Sequence[str], seed: int, rounds: int | None = None) -> Found:
    """Train with every setting, in turns; return its figures on validation data.

    Args:
        overrides: a preset and what is changed in it.
        seed: of data, weights and batches.
        rounds: of training, by default as many as the preset's epochs have.
    """
    preset, *changed = overrides
    experiment = read_experiment(preset, [*changed, f"seed={seed}"])
    federation = build_federation(experiment)
    rounds = rounds or experiment.training.epochs * federation.rounds_per_epoch
    compared = settings(experiment.training.batch_size, federation.rounds_per_epoch)
    networks = {
        name: BenchNetwork.of(replace(build_federation(experiment), method=method))
        for name, method in compared.items()
    }
    seconds = dict.fromkeys(networks, 0.0)
    for done in range(0, rounds, TURN):
        for name, network in networks.items():
            began = time.process_time()
            while network.round < min(rounds, done + TURN):
                network.step()
            seconds[name] += time.process_time() - began
    return {name: _finished(network, seconds[name]) for name, network in networks.items()}


def _finished(network: BenchNetwork, seconds: float) -> Figures:
    began = time.process_time()
    fit_post_hoc_maps(network.nodes, Barrier(network.transport), network.round - 1)
    seconds += time.process_time() - began
    found = evaluate_locally(network.nodes, "validation", oracle=False).summary()
    private, communication = found["private_accuracy"], found["communication_accuracy"]
    if private is None or communication is None:
        raise RuntimeError(f"nothing could be measured on validation data: {found}")
    sent = network.transport.ledger.bytes_sent()
    return Figures(private, communication, seconds, sent)


def as_rows(cell: str, found: Sequence[Found]) -> list[list[str]]:
    """Return a row per setting, with differences to the default in points, paired by seed."""
    rows = []
    for name in found[0]:
        each = [one[name] for one in found]
        accuracies = [[f.private for f in each], [f.communication for f in each]]
        changes = [100 * (one[name].mean - one[DEFAULT].mean) for one in found]
        cost = fmean(one[name].cpu_seconds / one[ALONE].cpu_seconds for one in found)
        rows.append(
            [
                cell,
                name,
                *(with_deviation(fmean(a), _deviation(a)) for a in accuracies),
                "" if name == DEFAULT else _with_error(changes),
                f"{cost:.2f}",
                f"{fmean(f.bytes_sent for f in each) / 2**20:.2f}",
            ]
        )
    return rows


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _with_error(values: Sequence[float]) -> str:
    """Return the mean and its standard error.

    >>> _with_error([1.0, 2.0, 3.0, 4.0])
    '+2.50 ± 0.65'
    """
    deviation = _deviation(values)
    error = "" if deviation is None else f" ± {deviation / sqrt(len(values)):.2f}"
    return f"{fmean(values):+.2f}{error}"


def measured(path: Path, overrides: Sequence[str], seed: int, rounds: int | None) -> Found:
    """Return the figures of a file; measure them if there is none."""
    plan = {"overrides": list(overrides), "seed": seed, "rounds": rounds}
    if not path.exists():
        found = measure(overrides, seed, rounds)
        content = {"plan": plan, "figures": {name: asdict(one) for name, one in found.items()}}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(content, indent=1).encode())
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["plan"] != plan:
        raise SystemExit(f"{path} was measured with {content['plan']}; choose another --out")
    return {name: Figures(**one) for name, one in content["figures"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--quick", action="store_true", help="the first cell, a seed, ten rounds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    cells = given.cells[:1] if given.quick else given.cells
    counts = {cell: 1 if given.quick else SEEDS[cell] for cell in cells}
    found: dict[str, list[Found]] = {cell: [] for cell in cells}
    for number in range(max(counts.values())):
        for cell in cells:
            if number < counts[cell]:
                seed = FIRST_SEED + number
                path = given.out / cell.replace(" ", "-") / f"seed-{seed}.json"
                rounds = 10 if given.quick else None
                found[cell].append(measured(path, CELLS[cell], seed, rounds))
                print(f"{cell}: seed {seed}", flush=True)
    headings = ["data", "setting", "private", "communication", "difference", "CPU", "MiB"]
    rows = [row for cell in cells for row in as_rows(cell, found[cell])]
    text = markdown_table(headings, rows)
    write_atomically(given.out / "pilot_cost.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
