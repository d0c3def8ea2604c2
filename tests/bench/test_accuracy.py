"""Time to accuracy: what is counted, and what follows from it."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch

from sheafed.bench import accuracy
from sheafed.bench.accuracy import (
    ALONE,
    CURVES,
    IN_BATCH,
    PAPER,
    QUICK,
    AccuracyPlan,
    Point,
    TimedTraining,
    as_csv,
    as_markdown,
    first_at,
    measure_accuracy,
    targets,
)
from sheafed.bench.networks import ring_of_small_agents
from sheafed.errors import BenchError
from sheafed.methods import ConsensusDistillation, NonCooperative, SheafFRL
from sheafed.methods.node import ALIGNMENT
from sheafed.reproduction.plan import RECOMMENDED

SIZE = 5


def trace(*reached: float, seconds: float = 1.0, sent: int = 100) -> list[Point]:
    return [
        Point(20 * k, seconds * k, sent * k, 0.9, value) for k, value in enumerate(reached, start=1)
    ]


def one_seed(level: float = 0.95) -> accuracy.Traces:
    return {
        ALONE.label: trace(0.5, 0.7, 0.85, seconds=2),
        PAPER.label: trace(0.5, 0.8, level, seconds=4, sent=5000),
        RECOMMENDED.label: trace(0.9, 0.94, 0.97, seconds=3),
        IN_BATCH.label: trace(0.9, 0.93, 0.96, seconds=2.4),
    }


def test_a_level_is_reached_at_the_first_point_at_or_above_it() -> None:
    points = trace(0.7, 0.9, 0.89, 0.95)
    assert first_at(points, 0.9) is points[1]
    assert first_at(points, 0.95) is points[3]
    assert first_at(points, 0.96) is None


def test_targets_compare_seed_by_seed() -> None:
    cpu, sent, alone, in_batch = targets(QUICK, [one_seed(), one_seed(), one_seed(level=0.89)])
    assert (cpu.measured, cpu.verdict) == (3 / 12, "met")
    assert (sent.measured, sent.verdict) == (100 / 15000, "met")
    assert cpu.raw["seeds that reached it with both"] == 2
    assert (alone.measured, alone.verdict) == (9 / 6, "missed")
    assert in_batch.measured == pytest.approx(7.2 / 6)
    assert in_batch.verdict == "met"
    assert len(targets(QUICK, [one_seed(level=0.89)])) == 2  # nothing to compare with


def test_the_table_says_how_many_seeds_reached_a_level() -> None:
    found = [one_seed(), one_seed(level=0.93)]
    lines = as_markdown(found).splitlines()
    assert lines[3].startswith(f"| {PAPER.label} | 8 | 0.00954 | 12 | 0.0143 | 12 (1 of 2) |")
    assert lines[2].count(" - |") == 4
    assert len(as_csv(found).splitlines()) == 1 + 2 * len(CURVES) * 3


def test_a_point_costs_the_rounds_so_far_and_maps_fitted_once() -> None:
    training = TimedTraining(ring_of_small_agents(SIZE, NonCooperative()), "alone")
    plain = ring_of_small_agents(SIZE, NonCooperative())
    ledger = training.network.transport.ledger
    first, second = training.advance(2), training.advance(4)
    assert first.cpu_seconds > 0
    assert ledger.bytes_sent(ALIGNMENT) > 0
    hello = ledger.bytes_sent() - ledger.bytes_sent(ALIGNMENT)
    assert first.bytes_sent == second.bytes_sent == hello + ledger.bytes_sent(ALIGNMENT) / 2
    for _ in range(4):
        plain.step()
    for name, node in plain.nodes.items():
        others = training.network.nodes[name].agent.parameters
        for one, other in zip(node.agent.parameters, others, strict=True):
            assert torch.equal(one, other)


def test_rows_are_the_defaults_of_the_methods_on_the_same_data() -> None:
    found = [QUICK.experiment(curve, seed=3) for curve in CURVES]
    assert [each.method for each in found] == [
        NonCooperative(),
        SheafFRL(),
        ConsensusDistillation(),
        ConsensusDistillation(pilots_in_batch=True),
    ]
    others = [each.model_dump(exclude={"method"}) for each in found]
    assert others[0] == others[1] == others[2] == others[3]
    assert others[0]["seed"] == 3


def test_a_seed_is_measured_once(tmp_path, monkeypatch) -> None:
    measured: list[int] = []

    def train_all(plan: AccuracyPlan, seed: int) -> accuracy.Traces:
        measured.append(seed)
        return one_seed()

    monkeypatch.setattr(accuracy, "fresh_processes", ThreadPoolExecutor)
    monkeypatch.setattr(accuracy, "train_all", train_all)
    for seeds in ([0], [0, 1]):
        _, found = measure_accuracy(QUICK, seeds, tmp_path / "out")
    assert (measured, found) == ([0, 1], [one_seed(), one_seed()])
    assert json.loads((tmp_path / "out" / "seed-1.json").read_text())["plan"]["config"] == "digits"
    with pytest.raises(BenchError, match="another plan; choose another --out"):
        measure_accuracy(AccuracyPlan("other", "digits", 10), [0], tmp_path / "out")


def test_all_methods_train_in_turn(monkeypatch) -> None:
    short = AccuracyPlan("two agents", "digits", 2, ('model.members=["bo", "dee"]',))
    monkeypatch.setattr(AccuracyPlan, "evaluated", lambda _: iter([1, 2]))
    found = accuracy.train_all(short, seed=0)
    assert list(found) == [curve.label for curve in CURVES]
    assert [[point.round for point in points] for points in found.values()] == [[1, 2]] * 4
    assert found[PAPER.label][1].bytes_sent > found[PAPER.label][0].bytes_sent


def test_a_method_may_stop_where_it_has_reached_all_levels(monkeypatch) -> None:
    reached = {
        ALONE.label: (0.5, 0.9, 0.96),
        PAPER.label: (0.7, 0.8, 0.9),
        RECOMMENDED.label: (0.96,),
        IN_BATCH.label: (0.9, 0.96),
    }

    class Training:
        def __init__(self, network: str, name: str) -> None:
            self.label, self.points = name.removesuffix(" 0"), list[Point]()

        def advance(self, rounds: int) -> Point:
            value = reached[self.label][len(self.points)]
            seconds = rounds * (1.0 if self.label == ALONE.label else 1.5)
            self.points.append(Point(rounds, seconds, rounds, 0.9, value))
            return self.points[-1]

    monkeypatch.setattr(accuracy, "TimedTraining", Training)
    monkeypatch.setattr(accuracy.BenchNetwork, "of", lambda federation: federation)
    monkeypatch.setattr(accuracy, "build_federation", lambda experiment: experiment)
    plan = AccuracyPlan("two agents", "digits", 60, densest=20, until_reached=True)
    found = accuracy.train_all(plan, seed=0)
    rounds = {label: [point.round for point in points] for label, points in found.items()}
    assert rounds == {
        ALONE.label: [20, 40, 60],
        PAPER.label: [20, 40, 60],
        RECOMMENDED.label: [20],
        IN_BATCH.label: [20, 40],
    }
    assert targets(plan, [found])[-2].measured == 1.5  # of the first 20 rounds


def test_evaluations_become_rarer() -> None:
    rounds = list(AccuracyPlan("x", "digits", 300).evaluated())
    assert rounds[:3] == [20, 40, 60]
    assert rounds[-1] == 300
    gaps = [b - a for a, b in pairwise(rounds[:-1])]
    assert gaps == sorted(gaps)
