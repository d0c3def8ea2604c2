"""What a run reports: the sheaf, the summary, the best and the last."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import cross_entropy
from sheafed.agents.samples import Batch
from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.methods import IdentityMaps, Method, NonCooperative, NoWhitening, SheafFRL
from sheafed.sheaf.network_sheaf import NetworkSheaf
from sheafed.training import Callback, Network, summarise, train
from sheafed.training.summary import peak_memory
from sheafed.transport.ledger import Ledger
from tests.helpers.federations import (
    EDGES,
    METHODS,
    agents,
    pilots,
    samples,
    simple_agent,
    start,
    weights,
)

MIXED, EQUAL = (5, 4, 3), (4, 4, 4)
CHAIN = [("a", "b"), ("b", "c"), ("a", "c")]


def run_of(method: Method, dimensions: tuple[int, ...], **options: Any) -> Network:
    team = [
        simple_agent(n, d, seed) for seed, (n, d) in enumerate(zip("abc", dimensions, strict=True))
    ]
    return train(team, CHAIN, method, pilots(), epochs=2, **options)


# The sheaf


@pytest.mark.parametrize("dimensions", [MIXED, EQUAL])
@pytest.mark.parametrize(
    "method",
    [
        SheafFRL(pilots_per_round=12),
        SheafFRL(pilots_per_round=12, whitening=NoWhitening()),
        SheafFRL(pilots_per_round=12, privacy="strict"),
        SheafFRL(pilots_per_round=12, privacy="strict", whitening=NoWhitening()),
        SheafFRL(maps=IdentityMaps()),
        NonCooperative(),
    ],
)
def test_the_sheaf_transports_as_the_agents_do(method: Method, dimensions: tuple[int, ...]) -> None:
    run = run_of(method, dimensions)
    sheaf = run.sheaf
    assert isinstance(sheaf, NetworkSheaf)  # which has checked shapes, edges and isometry
    assert sheaf.names == ("a", "b", "c")
    assert len(sheaf.edges) == 3
    for name, node in run.nodes.items():
        for neighbour in node.neighbours:
            z = torch.randn(5, node.agent.dimension, generator=torch.Generator().manual_seed(1))
            reader = run.nodes[neighbour]
            understood = reader.interpret(node.transmit(z, neighbour), name)
            carried = sheaf.transport(node.whitening.eval()(z), name, neighbour)
            assert torch.allclose(understood, reader.whitening.eval().colour(carried), atol=1e-4)


def test_the_sheaf_of_double_precision() -> None:
    team = []
    for name in "ab":
        data = tuple(x.double() if x.is_floating_point() else x for x in samples(20, 0))
        agent = simple_agent(name, 3 + (name == "a"))
        team.append(
            type(agent)(name, agent.encoder.double(), agent.head.double(), data=data, batch_size=5)
        )
    for method in (SheafFRL(pilots_per_round=12), NonCooperative()):
        run = train(team, [("a", "b")], method, pilots().inputs.double(), epochs=1)
        assert run.sheaf.maps["a", "b"].dtype == torch.float64


# The summary

KEYS = {
    "method",
    "seed",
    "epochs",
    "private_accuracy",
    "communication_accuracy",
    "communication_accuracy_degree_weighted",
    "oracle_accuracy",
    "misalignment",
    "bytes_sent",
    "rounds",
    "seconds",
    "peak_memory_bytes",
    "agents",
    "edges",
}


@pytest.mark.parametrize("case", list(METHODS))
def test_summary(case: str, tmp_path: Path) -> None:
    run = start(case, tmp_path, epochs=2)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary) >= KEYS
    assert summarise(run) | {"peak_memory_bytes": 0} == summary | {"peak_memory_bytes": 0}
    assert summary["method"] == METHODS[case]().label
    assert (summary["seed"], summary["epochs"], summary["rounds"]) == (7, 2, 10)
    assert summary["seconds"] > 0
    assert 10**7 < summary["peak_memory_bytes"] < 10**11
    for key in KEYS & set(run.history.last):
        if key != "agents":
            assert summary[key] == run.history.last[key]
    assert summary["bytes_sent"] == run.history.ledger.bytes_sent() > 0
    assert summary["best"] == run.history.best
    assert summary["agents"]["bob"] == {
        "dimension": 4,
        "neighbours": ["ada", "cyd"],
        "training_samples": 41,
        "objective": "cross_entropy",
        **run.history.last["agents"]["bob"],
    }
    pairs = [(edge["sender"], edge["receiver"]) for edge in summary["edges"]]
    assert sorted(pairs) == sorted([*EDGES, *(edge[::-1] for edge in EDGES)])
    for edge, pair in zip(summary["edges"], pairs, strict=True):
        assert edge["communication_accuracy"] == run.history.evaluation.communication[pair]
        assert edge["oracle_accuracy"] == run.history.evaluation.oracle[pair]
        found = run.history.evaluation.misalignment
        assert edge["misalignment"] == found.get(pair, found.get(pair[::-1]))
        sent = [r for r in run.history.ledger.rows() if (r.sender, r.receiver) == pair]
        assert edge["bytes_sent"] == sum(r.header_bytes + r.payload_bytes for r in sent)
    assert sum(edge["bytes_sent"] for edge in summary["edges"]) == summary["bytes_sent"]


def test_summary_has_every_edge_also_without_test_data() -> None:
    team = [simple_agent(n, 3 + k, data=samples(20, k)) for k, n in enumerate("ab")]
    summary = summarise(
        train(team, [("a", "b")], SheafFRL(pilots_per_round=12), pilots(), epochs=1)
    )
    assert [(e["sender"], e["receiver"]) for e in summary["edges"]] == [("b", "a"), ("a", "b")]
    for edge in summary["edges"]:
        assert edge["communication_accuracy"] is None
        assert edge["oracle_accuracy"] is None
        assert edge["misalignment"] > 0
        assert edge["bytes_sent"] > 0
    json.dumps(summary)


def test_a_run_that_has_not_begun() -> None:
    begun: list[Network] = []

    class Look(Callback):
        def on_start(self, run: Network) -> None:
            begun.append(run)
            summary = summarise(run)
            json.dumps(summary)
            assert summary["private_accuracy"] is None
            assert (run.history.rounds, run.history.epoch, run.history.records) == (0, 0, [])
            assert run.history.last is None
            assert run.history.best is None
            assert isinstance(run.history.ledger, Ledger)

    assert begun == [start("alone", epochs=1, callbacks=[Look()])]


# The best and the last


def test_best_is_by_validation_score(tmp_path: Path) -> None:
    kept: dict[int, dict[str, Any]] = {}

    class Keep(Callback):
        def on_evaluation(self, run: Network, record: Any) -> bool:
            kept[record["epoch"]] = weights(run)
            return False

    def turn(agent: Agent, batch: Batch) -> Tensor:
        """Learn for four epochs, and forget from then on."""
        return cross_entropy(agent, batch) * (1 if agent.steps < 16 else -5)

    team = [simple_agent(n, 3 + k, objective=turn) for k, n in enumerate("ab")]
    options: dict[str, Any] = {"epochs": 9, "out": tmp_path, "callbacks": [Keep()]}
    run = train(team, [("a", "b")], SheafFRL(pilots_per_round=12), pilots(), **options)
    scores = [record["validation_score"] for record in run.history.records]
    best = scores.index(max(scores)) + 1
    assert run.history.best["epoch"] == best
    assert 1 < best < 9
    assert run.history.last["epoch"] == 9
    for file, epoch in (("best", best), ("last", 9)):
        tree = load_checkpoint(tmp_path / f"{file}.safetensors")
        assert sorted(tree["agents"]) == ["a", "b"]
        held = {
            f"{name} {part} {key}": value
            for name, saved in tree["agents"].items()
            for part in ("encoder", "head")
            for key, value in saved["agent"][part].items()
        }
        assert held.keys() == kept[epoch].keys()
        assert all(torch.equal(held[key], kept[epoch][key]) for key in held)


def test_of_equal_scores_the_first_is_the_best(tmp_path: Path) -> None:
    run = start("alone", epochs=1)
    run.history.records = [
        {"epoch": k, "validation_score": score} for k, score in enumerate([0.5, 0.7, 0.7, None])
    ]
    assert run.history.best == {"epoch": 1, "validation_score": 0.7}
    assert run.history.last == {"epoch": 3, "validation_score": None}


def test_without_validation_data_there_is_no_best(tmp_path: Path) -> None:
    team = agents()
    data = {"train": samples(20, 0), "test": samples(20, 1)}
    team[1] = simple_agent("bob", 4, data=data)
    run = train(team, EDGES, SheafFRL(pilots_per_round=8), pilots(), epochs=2, out=tmp_path)
    assert run.history.best is None
    assert summarise(run)["best"] is None
    assert not any(key.startswith("validation") for record in run.history.records for key in record)
    assert not (tmp_path / "best.safetensors").exists()
    assert (tmp_path / "last.safetensors").exists()


def test_weights_of_an_agent_without_a_head(tmp_path: Path) -> None:
    agent = simple_agent("a", head=None, objective=lambda a, b: a.encode(b.inputs).square().mean())
    train([agent], [], NonCooperative(), pilots(), epochs=1, out=tmp_path)
    tree = load_checkpoint(tmp_path / "last.safetensors")
    assert tree["agents"]["a"]["agent"]["head"] is None
    assert torch.equal(tree["agents"]["a"]["agent"]["encoder"]["weight"], agent.encoder.weight)
    assert not (tmp_path / "best.safetensors").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system tells no more")
def test_the_peak_is_not_that_of_the_process_that_started_this_one() -> None:
    held = torch.ones(1 << 27)  # 512 MiB
    build_node = "from sheafed.training.summary import peak_memory; print(peak_memory())"
    child = int(subprocess.check_output([sys.executable, "-c", build_node], text=True))
    assert 10**8 < child < peak_memory() - held.nbytes / 2
