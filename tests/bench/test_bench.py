"""The benchmarks measure what they describe; speed itself is not asserted."""

import os

import numpy as np
import pytest
import torch

from sheafed.bench import measurement
from sheafed.bench.measurement import (
    Measurement,
    fresh_processes,
    interleaved,
    ratios,
    standard_error,
)
from sheafed.bench.networks import ring_of_small_agents, zoo
from sheafed.bench.rounds import bare_loop, plain_loop
from sheafed.methods import NonCooperative, SheafFRL


@pytest.mark.parametrize(
    ("measured", "at_most", "verdict"),
    [(1.0, True, "met"), (1.2, True, "missed"), (1.2, False, "met"), (0.9, False, "missed")],
)
def test_a_verdict_follows_from_the_bound(measured: float, at_most: bool, verdict: str) -> None:
    measurement = Measurement(1, "x", 1.1, measured, at_most=at_most)
    assert measurement.verdict == verdict
    assert measurement.as_dict()["verdict"] == verdict


def test_tasks_take_turns_and_warm_up_is_not_counted() -> None:
    calls: list[str] = []
    tasks = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = interleaved(tasks, repeats=3, warm_up=2)
    assert "".join(calls) == "ab" * 5
    assert [len(times) for times in seconds.values()] == [3, 3]
    assert ratios({"a": [1.0, 2.0, 9.0], "b": [1.0, 1.0, 3.0]}, "a", "b") == [1.0, 2.0, 3.0]


def test_the_noise_of_a_median_is_that_of_repeated_runs() -> None:
    """Against the spread of the medians of many simulated runs."""
    turns = torch.randn(4000, 25, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    medians = turns.median(dim=1).values
    errors = [standard_error(run) for run in turns[:200].tolist()]
    assert np.mean(errors) == pytest.approx(float(medians.std()), rel=0.05)
    one = Measurement.of_turns(1, "x", 1.0, [2.0, 1.0, 9.0])
    assert (one.measured, one.noise) == (2.0, standard_error([1.0, 2.0, 9.0]))
    assert Measurement.of_turns(1, "x", 1.0, [2.0]).noise is None


def test_every_task_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "PRELOADED", ["torch"])
    with fresh_processes(1) as pool:
        running = [pool.submit(os.getpid) for _ in range(2)]
        assert len({os.getpid(), *(task.result() for task in running)}) == 3


def test_the_zoo_is_that_of_the_paper() -> None:
    network = zoo(NonCooperative(), train=64, test=2)
    agents = [node.agent for node in network.nodes.values()]
    assert len(agents) == 15
    assert network.graph.number_of_edges() == 42
    assert sum(p.numel() for agent in agents for p in agent.parameters) == 3_411_690


def test_small_agents_have_four_neighbours_each() -> None:
    network = ring_of_small_agents(9, SheafFRL(pilots_per_round=8))
    assert {len(node.neighbours) for node in network.nodes.values()} == {4}
    network.step()
    assert network.round == 1
    assert network.transport.ledger.bytes_sent() > 0


def test_the_bare_loop_takes_the_steps_of_independent_training() -> None:
    """Without dropout and clipping it would be the same training; here the batches are."""
    network, twin = (
        ring_of_small_agents(5, NonCooperative()),
        ring_of_small_agents(5, NonCooperative()),
    )
    step = bare_loop(twin)
    for _ in range(3):
        network.step()
        step()
    for name, node in network.nodes.items():
        for one, other in zip(
            node.agent.parameters, twin.nodes[name].agent.parameters, strict=True
        ):
            torch.testing.assert_close(one, other)


def test_the_plain_loop_undoes_the_layout_and_learns() -> None:
    network = ring_of_small_agents(5, NonCooperative())
    agent = next(iter(network.nodes.values())).agent
    before = [p.detach().clone() for p in agent.parameters]
    plain_loop(network)()
    assert all(p.is_contiguous() for p in agent.parameters)
    assert any(not torch.equal(p, old) for p, old in zip(agent.parameters, before, strict=True))
