"""Every example runs as a user would run it, and does what it promises."""

import importlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sheafed.evaluation import evaluate_locally
from sheafed.privacy import attacks

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
    assert run.history.last["private_accuracy"] > 0.75
    assert run.history.last["communication_accuracy"] > 0.6
    assert (tmp_path / "last.safetensors").exists()


def test_modalities(load, capsys):
    module = load("modalities")
    runs = module.main(epochs=2)
    assert list(runs) == list(module.METHODS)
    for run in runs.values():
        shapes = {tuple(run.pilots.of(name).shape[1:]) for name in run.nodes}
        assert shapes == {(1, 8, 8), (1, 8, 5), (1, 16), (1, 8, 2, 2)}
        assert run.history.evaluation.oracle == {}
        private = evaluate_locally(run.nodes, "validation").private
        for sender, receiver in module.best_informed(run).items():
            assert private[receiver] == max(v for n, v in private.items() if n != sender)
    assert capsys.readouterr().out.count("eye") >= 3


def test_join_network(load, capsys):
    module = load("join_network")
    found = module.main(epochs=2)
    assert list(found) == list(module.METHODS)
    for stages in found.values():
        assert list(stages) == ["joined", "trained on", "all trained on"]
        joined, trained, together = stages.values()
        assert trained["others"] == joined["others"] != together["others"]
        assert trained["private"] != joined["private"]
    assert "all trained on" in capsys.readouterr().out


def test_five_agents(load, tmp_path):
    runs = load("five_agents").main(tmp_path, epochs=40)
    assert list(runs) == ["Non-cooperative", "Sheaf-FRL", "Sheaf-FRL with distillation"]
    alone, glued, believing = (run.history.last["communication_accuracy"] for run in runs.values())
    assert believing > alone + 0.05
    assert glued > alone - 0.05
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 20_000


def test_noisy_channels(load, tmp_path):
    module = load("noisy_channels")
    module.AXES = {"snr_db": ("dB", (-20, 20), (20,)), "bits": ("bits", (1, 8), ())}
    module.AXES["erasure"] = ("lost", (1.0,), ())
    found = module.main(tmp_path, epochs=4)
    assert list(found) == ["alone", "standard", "strict"]
    for accuracies in found.values():
        perfect = accuracies["perfect", False, 0]
        assert perfect > 0.2
        assert accuracies["snr_db", False, -20] < perfect - 0.1
        assert abs(accuracies["snr_db", False, 20] - perfect) < 0.05
        assert abs(accuracies["bits", False, 8] - perfect) < 0.05
        assert accuracies["erasure", False, 1.0] < perfect - 0.1
    assert (tmp_path / "noisy_channels.png").stat().st_size > 20_000


def test_edge_stalks(load, tmp_path):
    module = load("edge_stalks")
    module.EDGE_DIMS = (2, 24)
    runs = module.main(tmp_path, epochs=4)
    small, large, standard, strict = (
        run for (name, _), run in runs.items() if "distillation" in name
    )
    sent = [module.bytes_per_round(run) for run in (small, large, standard, strict)]
    assert sent == sorted(sent)
    assert module.accuracy(small) < module.accuracy(large)
    assert (tmp_path / "edge_stalks.png").stat().st_size > 20_000


def test_label_free(load):
    found = load("label_free").main(epochs=8)
    assert list(found) == ["autoencoding", "VICReg", "SimCLR"]
    for jointly, post_hoc, *linear in found.values():
        assert min(jointly, post_hoc) > 0.2  # a guess is right in one case of ten
        assert min(linear) > 0.7


def test_frozen_encoders(load):
    runs = load("frozen_encoders").main(epochs=8)
    assert list(runs) == ["jointly", "post hoc"]
    for run in runs.values():
        assert [a.name for a in run.agents.values() if not a.frozen] == ["ada"]
        assert run.history.evaluation.private["network"] > 0.7
        assert run.history.evaluation.communication["ada", "network"] > 0.3


def test_multi_hop(load):
    tried, routed = load("multi_hop").main(epochs=12)
    assert max(len(path) for path in tried) == 8
    # Going round the narrow stalk pays, and a neighbour's map is all but the direct one.
    assert routed["least expected loss"] > routed["fewest hops, a random path"]
    assert max(abs(lost) for path, (_, lost, *_) in tried.items() if len(path) == 2) < 0.2


def test_privacy_attacks(load, monkeypatch):
    leakage = load("privacy_attacks")
    monkeypatch.delitem(leakage.METHODS, "epsilon 16")
    monkeypatch.delitem(leakage.METHODS, "epsilon 4")
    monkeypatch.setattr(attacks, "train_decoder", partial(attacks.train_decoder, epochs=30))
    rows = leakage.main(epochs=5)
    names = ["standard", "strict", "strict, other edge", "epsilon 64", "epsilon 64 on all"]
    assert list(rows) == names
    recognised = {name: row["recognised"] for name, row in rows.items()}
    assert min(recognised["standard"], recognised["strict"]) > 0.4
    assert recognised["strict, other edge"] < 0.3
