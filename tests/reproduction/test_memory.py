"""Memory formulas against tensors that exist, and measured runs."""

import csv
from dataclasses import replace

import pytest
import torch

from sheafed.config.agents import agent_specs
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.graphs import class_overlap
from sheafed.models import build_encoder, build_head
from sheafed.reproduction import figures, memory
from sheafed.reproduction.memory import (
    MemoryPlan,
    available_memory,
    dense_bytes,
    parameter_counts,
    rank_one_bytes,
)
from sheafed.training import train
from tests.helpers.figures import assert_drawn

GAMMAS = (1e-4, 3e-3, 2e-2)


@pytest.fixture
def plan(three):
    settings = ("method.name=sheaf-fmtl", "method.every=1")
    return MemoryPlan("quick", three, settings, ("1e-3", "1e-2"), seed=0)


def trained(config, gamma, rounds):
    """Sheaf-FMTL after some exchanges."""
    overrides = ["method.name=sheaf-fmtl", "method.every=1", f"method.gamma={gamma}"]
    federation = build_federation(read_experiment(config, overrides))
    run = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=1,
        rounds_per_epoch=rounds,
    )
    return federation, run


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_formulas_count_the_tensors(three, gamma):
    federation, run = trained(three, gamma, rounds=3)
    sizes, edges = parameter_counts(federation), list(federation.graph.edges)
    models = sum(p.nbytes for agent in federation.agents for p in agent.parameters)
    maps = [node.maps for node in run.nodes.values()]
    halves = sum(m.dense().to(torch.float16).nbytes for m in maps)
    assert dense_bytes(sizes, edges, gamma) == halves + models
    kept = 0
    for m in maps:
        state = m.state()
        kept += sum(t.nbytes for t in [*state["thetas"], *state["moves"]])
        kept += 0 if state["matrix"] is None else state["matrix"].nbytes
        kept += sum(s._chosen.nbytes + s._signs.nbytes for s in m.starts)
    assert rank_one_bytes(sizes, edges, gamma, exchanges=3) == kept + models
    assert any(m.is_dense for m in maps) == (gamma == GAMMAS[0])


def test_an_edge_by_hand():
    sizes = {"a": 1000, "b": 3000}
    assert dense_bytes(sizes, [("a", "b")], 0.01) == 2 * 10 * 4000 + 4 * 4000
    assert dense_bytes(sizes, [("a", "b")], 1e-9) == 2 * 1 * 4000 + 4 * 4000


def test_the_zoo_of_the_paper():
    """Dense maps in single precision take 10.8 GiB at gamma = 1e-3."""
    specs = agent_specs(read_experiment("fifteen"), classes=10)
    sizes = {}
    for name, spec in specs.items():
        parts = (build_encoder(spec, (1, 28, 28)), build_head(spec, 10))
        sizes[name] = sum(p.numel() for part in parts for p in part.parameters())
    assert sum(sizes.values()) == 3_411_690
    edges = class_overlap({name: spec.target_classes for name, spec in specs.items()}, 0.4).edges
    halves = dense_bytes(sizes, edges, 1e-3) - 4 * 3_411_690
    assert round(2 * halves / 2**30, 1) == 10.8


def test_measured_runs_and_files(plan, tmp_path, in_process, monkeypatch):
    text = memory.reproduce(plan, tmp_path)
    assert [t.overrides[0] for t in in_process] == ["method.gamma=1e-3", "method.gamma=1e-2"]
    assert_drawn(tmp_path, "memory")
    with (tmp_path / "memory.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(r["gamma"]) for r in rows] == [1e-3, 1e-2]
    for r in rows:
        assert int(r["measured_peak_bytes"]) > 100 * 2**20
        assert r["stopped"] == "false"
    federation = build_federation(plan.experiment())
    sizes, edges = parameter_counts(federation), list(federation.graph.edges)
    assert int(rows[1]["dense_bytes"]) == dense_bytes(sizes, edges, 1e-2)
    assert f"{sum(sizes.values()):,} parameters and 2 edges" in text
    assert "seed 0" in text
    assert "50% of the training data of digits" in text
    in_process.clear()
    monkeypatch.setattr(figures, "save_figure", lambda *_: None)  # it has been drawn
    memory.reproduce(plan, tmp_path)
    assert in_process == []


def test_a_run_that_exceeds_its_bound_is_marked(plan, tmp_path):
    small = replace(plan, gammas=("1e-3",), bound=300 * 2**20)
    memory.reproduce(small, tmp_path)
    assert "| exceeded its bound |" in (tmp_path / "memory.md").read_text()
    assert (tmp_path / "memory.csv").read_text().rstrip().endswith(",,true")
    assert_drawn(tmp_path, "memory")


def test_the_available_memory_is_that_of_this_machine():
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) * 1024
    assert 0 < available_memory() < total
