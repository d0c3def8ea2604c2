"""CPU seconds and bytes until communication accuracy first reaches a level.

Methods take turns, a few rounds each, so that a busy machine slows all of them equally. What a
point of a curve costs is what it would cost to stop there: all rounds so far, and the maps fitted
once, if the method fits them after training. Evaluation costs nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median

from sheafed.atomic_io import write_atomically
from sheafed.bench.measurement import Measurement, fresh_processes
from sheafed.bench.networks import BenchNetwork
from sheafed.config.experiment import Experiment
from sheafed.config.federation import build_federation
from sheafed.config.reading import parse_experiment, read_experiment
from sheafed.errors import BenchError
from sheafed.evaluation import evaluate_locally
from sheafed.reproduction.plan import NON_COOPERATIVE, RECOMMENDED, SHEAF_FRL, Curve
from sheafed.reproduction.shift import SMALL
from sheafed.sweep.trials import Overrides
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier

LEVELS = (0.80, 0.90, 0.95)
ALONE, PAPER = NON_COOPERATIVE, SHEAF_FRL
IN_BATCH = replace(
    RECOMMENDED,
    label=f"{RECOMMENDED.label}, pilots in the batch",
    overrides=(*RECOMMENDED.overrides, "method.pilots_in_batch=true"),
    colour="#CC79A7",
    marker="^",
)
"""A step of it costs what one of training alone costs."""
CURVES = (ALONE, PAPER, RECOMMENDED, IN_BATCH)
"""With the defaults of their options: Sheaf-FRL exchanges float32 latents in every round."""
TARGET_LEVEL = 0.90
CPU_BOUND, BYTES_BOUND, ALONE_BOUND = 0.5, 1 / 50, 1.25


@dataclass(frozen=True)
class AccuracyPlan:
    """The agents whose training is measured, and for how long."""

    label: str
    config: str
    rounds: int
    """At most."""
    settings: Overrides = ()
    densest: int = 20
    """Rounds from one evaluation to the next, at first."""
    until_reached: bool = False
    """Whether a method stops when it has reached all levels, whatever the others do."""

    def evaluated(self) -> Iterator[int]:
        """Return the rounds after which accuracy is measured, denser at first."""
        done = 0
        while done < self.rounds:
            done = min(self.rounds, done + max(self.densest, done // 5))
            yield done

    def experiment(self, curve: Curve, seed: int) -> Experiment:
        """Return what a method runs: of the config, all but its method."""
        common = read_experiment(self.config, (*self.settings, f"seed={seed}"))
        return parse_experiment(common.model_dump(mode="json") | {"method": {}}, curve.overrides)


QUICK = AccuracyPlan("five small agents on digits", "digits", 300)
FIVE = AccuracyPlan(
    "five small agents of the zoo on MNIST",
    "fifteen",
    700,
    (
        f"model.members=[{', '.join(json.dumps(name) for name in SMALL)}]",
        "data.pilot_fraction=0.02",
    ),
)
FIFTEEN = AccuracyPlan(
    "the fifteen agents on MNIST",
    "fifteen",
    2400,
    ("data.pilot_fraction=0.02",),
    densest=48,
    until_reached=True,
)


@dataclass(frozen=True)
class Point:
    """What a training has reached, and what it would cost to stop there."""

    round: int
    cpu_seconds: float
    bytes_sent: int
    private: float
    communication: float


Traces = dict[str, list[Point]]
"""The points of each method, by its label."""


def measure_accuracy(
    plan: AccuracyPlan, seeds: Sequence[int], out: Path
) -> tuple[list[Measurement], list[Traces]]:
    """Measure what is missing, a seed at a time in a process of its own; return targets and curves.

    Args:
        plan: what to train.
        seeds: of data, weights and batches.
        out: a directory with a file of the curves per seed.
    """
    found = []
    for seed in seeds:
        path = out / f"seed-{seed}.json"
        if not path.exists():
            with fresh_processes(1) as pool:
                traces = pool.submit(train_all, plan, seed).result()
            content = {"plan": asdict(plan), "traces": _as_json(traces)}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(content, indent=1).encode())
        found.append(_read(path, plan))
    return targets(plan, found), found


def train_all(plan: AccuracyPlan, seed: int) -> Traces:
    """Train with each method in turn until all have reached all levels, or the rounds are over."""
    keep_freed_memory()
    running = {
        curve.label: TimedTraining(
            BenchNetwork.of(build_federation(plan.experiment(curve, seed))), f"{curve.label} {seed}"
        )
        for curve in CURVES
    }
    training = dict(running)
    for rounds in plan.evaluated():
        reached = {label: each.advance(rounds).communication for label, each in training.items()}
        unfinished = [label for label, value in reached.items() if value < max(LEVELS)]
        if not unfinished:
            break
        if plan.until_reached:
            training = {label: running[label] for label in unfinished}
    return {label: each.points for label, each in running.items()}


class TimedTraining:
    """A network whose rounds are timed, evaluations left out."""

    def __init__(self, network: BenchNetwork, name: str) -> None:
        self.network, self.name = network, name
        self.points: list[Point] = []
        self._seconds = 0.0
        self._for_maps = 0

    def advance(self, rounds: int) -> Point:
        """Train to a round, fit maps as if it were the last, and evaluate."""
        network, ledger = self.network, self.network.transport.ledger
        began = time.process_time()
        while network.round < rounds:
            network.step()
        trained = time.process_time()
        sent = ledger.bytes_sent() - self._for_maps
        fit_post_hoc_maps(network.nodes, Barrier(network.transport), network.round - 1)
        fitted = time.process_time()
        for_maps = ledger.bytes_sent() - self._for_maps - sent
        self._seconds += trained - began
        self._for_maps += for_maps
        found = evaluate_locally(network.nodes, "test", oracle=False).summary()
        point = Point(
            network.round,
            self._seconds + fitted - trained,
            sent + for_maps,
            float(found["private_accuracy"] or 0.0),
            float(found["communication_accuracy"] or 0.0),
        )
        self.points.append(point)
        shown = f"{point.cpu_seconds:.0f} CPU s, communication {point.communication:.3f}"
        print(f"{self.name}: round {point.round}, {shown}", file=sys.stderr, flush=True)
        return point


def first_at(points: Sequence[Point], level: float) -> Point | None:
    """Return the first point whose communication accuracy is at least a level."""
    return next((point for point in points if point.communication >= level), None)


def targets(plan: AccuracyPlan, found: Sequence[Traces]) -> list[Measurement]:
    """Return what the recommended method costs of the paper's, and of training alone."""
    pairs = [
        (first_at(each[RECOMMENDED.label], TARGET_LEVEL), first_at(each[PAPER.label], TARGET_LEVEL))
        for each in found
    ]
    reached = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    measured = []
    if reached:
        until = f"to communication accuracy {TARGET_LEVEL:.2f}, {plan.label}"
        compared = f"{RECOMMENDED.label} over {PAPER.label} {until}"
        seconds = [ours.cpu_seconds / theirs.cpu_seconds for ours, theirs in reached]
        sent = [ours.bytes_sent / theirs.bytes_sent for ours, theirs in reached]
        raw = {"seeds that reached it with both": len(reached)}
        measured += [
            Measurement.of_turns(9, f"CPU seconds of {compared}", CPU_BOUND, seconds, raw=raw),
            Measurement.of_turns(9, f"bytes of {compared}", BYTES_BOUND, sent, raw=raw),
        ]
    for curve in (RECOMMENDED, IN_BATCH):
        what = f"CPU seconds of {curve.label} over training alone, same rounds, {plan.label}"
        last = [list(zip(each[curve.label], each[ALONE.label], strict=False))[-1] for each in found]
        over_alone = [ours.cpu_seconds / theirs.cpu_seconds for ours, theirs in last]
        measured.append(Measurement.of_turns(9, what, ALONE_BOUND, over_alone))
    return measured


def cost_of(found: Sequence[Traces], curve: Curve, level: float) -> list[Point]:
    """Return where each seed first reached a level, of those that did."""
    points = (first_at(each[curve.label], level) for each in found)
    return [point for point in points if point is not None]


def as_markdown(found: Sequence[Traces]) -> str:
    """Return a table of medians over seeds, with how many seeds reached a level if not all."""
    heads = [f"{unit} to {level:.2f}" for level in LEVELS for unit in ("CPU s", "MiB")]
    lines = ["| method | " + " | ".join(heads) + " | last private / communication |"]
    lines.append("|" + "---|" * (len(heads) + 2))
    for curve in CURVES:
        cells = []
        for level in LEVELS:
            reached = cost_of(found, curve, level)
            note = "" if len(reached) == len(found) else f" ({len(reached)} of {len(found)})"
            seconds = [point.cpu_seconds for point in reached]
            sent = [point.bytes_sent / 2**20 for point in reached]
            cells += [f"{median(each):.3g}{note}" if each else "-" for each in (seconds, sent)]
        last = [each[curve.label][-1] for each in found]
        final = [f"{median(getattr(p, k) for p in last):.3f}" for k in ("private", "communication")]
        lines.append(f"| {curve.label} | " + " | ".join([*cells, " / ".join(final)]) + " |")
    return "\n".join(lines) + "\n"


def as_csv(found: Sequence[Traces]) -> str:
    """Return every point, a line each."""
    names = [field.name for field in fields(Point)]
    lines = [",".join(["method", "number", *names])]
    for number, traces in enumerate(found):
        for label, points in traces.items():
            lines += [
                ",".join([label, str(number), *(f"{getattr(p, name):g}" for name in names)])
                for p in points
            ]
    return "\n".join(lines) + "\n"


def _as_json(traces: Mapping[str, Sequence[Point]]) -> dict[str, list[dict[str, float]]]:
    return {label: [asdict(point) for point in points] for label, points in traces.items()}


def _read(path: Path, plan: AccuracyPlan) -> Traces:
    content = json.loads(path.read_text(encoding="utf-8"))
    traces, same_plan = content["traces"], content["plan"] == json.loads(json.dumps(asdict(plan)))
    if not same_plan or traces.keys() != {curve.label for curve in CURVES}:
        raise BenchError(f"{path} was measured with another plan; choose another --out")
    return {label: [Point(**point) for point in points] for label, points in traces.items()}
