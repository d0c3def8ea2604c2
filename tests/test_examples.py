"""Every example runs as a user would run it, and does what it promises."""

import importlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sheafed.privacy import probes

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


def test_five_agents(load, tmp_path):
    runs = load("five_agents").main(tmp_path, epochs=40)
    assert list(runs) == ["Non-cooperative", "Sheaf-FRL", "Sheaf-FRL with beliefs"]
    alone, glued, believing = (run.last["communication_accuracy"] for run in runs.values())
    assert believing > alone + 0.05
    assert glued > alone - 0.05
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 20_000


def test_strangers(load):
    tried, routed = load("strangers").main(epochs=2)
    assert max(len(path) for path in tried) == 8
    # Whoever knows all outcomes chooses best, and a neighbour's map is all but the direct one.
    assert max(routed.values()) == routed["the best of all, in hindsight"]
    assert max(abs(lost) for path, (_, lost, *_) in tried.items() if len(path) == 2) < 0.2


def test_leakage(load, monkeypatch):
    leakage = load("leakage")
    monkeypatch.delitem(leakage.METHODS, "epsilon 16")
    monkeypatch.delitem(leakage.METHODS, "epsilon 4")
    monkeypatch.setattr(probes, "train_decoder", partial(probes.train_decoder, epochs=30))
    rows = leakage.main(epochs=5)
    names = ["standard", "strict", "strict, other edge", "epsilon 64", "epsilon 64 on all"]
    assert list(rows) == names
    recognised = {name: row["recognised"] for name, row in rows.items()}
    assert min(recognised["standard"], recognised["strict"]) > 0.4
    assert recognised["strict, other edge"] < 0.3
