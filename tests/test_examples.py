"""Every example runs as a user would run it, and does what it promises."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from sheafed.runtime import evaluate

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_examples_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > 100} == {}


def test_post_hoc_alignment(load, tmp_path):
    understood = load("post_hoc_alignment").main(tmp_path)
    private = np.diag(understood)
    assert private.min() > 0.85
    assert (private[None] - understood).max() < 0.15
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 5_000
    assert (tmp_path / "alignment" / "alignment.json").exists()


def test_three_agents(load, tmp_path):
    run = load("three_agents").main(tmp_path, epochs=20)
    assert sorted(agent.dimension for agent in run.agents.values()) == [24, 32, 40]
    assert run.last["private_accuracy"] > 0.75
    assert run.last["communication_accuracy"] > 0.6
    assert (tmp_path / "last.safetensors").exists()


def test_modalities(load, tmp_path):
    module = load("modalities")
    runs = module.main(tmp_path / "table.txt", epochs=2)
    assert list(runs) == list(module.METHODS)
    for run in runs.values():
        shapes = {tuple(run.pilots.of(name).shape[1:]) for name in run.nodes}
        assert shapes == {(1, 8, 8), (1, 8, 5), (1, 16), (1, 8, 2, 2)}
        assert run.evaluation.ceiling == {}
        private = evaluate(run.nodes, "validation").private
        for sender, receiver in module.best_informed(run).items():
            assert private[receiver] == max(v for n, v in private.items() if n != sender)
    assert (tmp_path / "table.txt").read_text().count("eye") >= 3


def test_newcomer(load, tmp_path):
    module = load("newcomer")
    found = module.main(tmp_path / "table.txt", epochs=2)
    assert list(found) == list(module.METHODS)
    for stages in found.values():
        assert list(stages) == ["joined", "trained on", "all trained on"]
        joined, trained, together = stages.values()
        assert trained["others"] == joined["others"] != together["others"]
        assert trained["private"] != joined["private"]
    assert "all trained on" in (tmp_path / "table.txt").read_text()


def test_five_agents(load, tmp_path):
    runs = load("five_agents").main(tmp_path, epochs=40)
    assert list(runs) == ["Non-cooperative", "Sheaf-FRL", "Sheaf-FRL with beliefs"]
    alone, glued, believing = (run.last["communication_accuracy"] for run in runs.values())
    assert believing > alone + 0.05
    assert glued > alone - 0.05
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 20_000
