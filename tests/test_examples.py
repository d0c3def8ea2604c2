"""Every example runs, for a few epochs, and shows what it is there to show."""

import importlib
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from sheafed.config import read_experiment, run_experiment
from sheafed.datasets import TextDataset
from sheafed.evaluation import evaluate_locally
from sheafed.privacy import attacks

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_examples_are_short_and_use_the_public_api():
    for path in EXAMPLES.glob("*.py"):
        source = path.read_text()
        assert len(source.splitlines()) <= 105, path.name
        assert not re.search(r"(from|import) sheafed\.\w+\.", source), path.name


def test_post_hoc_alignment(load, tmp_path):
    accuracy = load("post_hoc_alignment").main(tmp_path, epochs=20)
    private = np.diag(accuracy)
    assert private.min() > 0.8
    assert (private[None] - accuracy).max() < 0.15
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 5_000
    assert (tmp_path / "alignment" / "alignment.json").exists()


def test_three_agents(load, tmp_path, monkeypatch):
    module = load("three_agents")
    adam = partial(module.build, optimizer=lambda p: torch.optim.Adam(p, lr=5e-3))
    monkeypatch.setattr(module, "build", adam)
    network = module.main(tmp_path, epochs=8)
    assert sorted(agent.dimension for agent in network.agents.values()) == [24, 32, 40]
    assert network.history.last["private_accuracy"] > 0.8
    assert network.history.last["communication_accuracy"] > 0.75  # without distillation .63
    assert (tmp_path / "last.safetensors").exists()


@pytest.mark.usefixtures("short_reading_heads")
def test_modalities(load, capsys):
    module = load("modalities")
    networks = module.main(epochs=1)
    assert list(networks) == list(module.METHODS)
    for network in networks.values():
        shapes = {tuple(network.pilots.of(name).shape[1:]) for name in network.nodes}
        assert shapes == {(1, 8, 8), (1, 8, 5), (1, 16), (1, 8, 2, 2)}
        assert network.history.evaluation.oracle == {}
        private = evaluate_locally(network.nodes, "validation").private
        for sender, receiver in module.best_informed(network).items():
            assert private[receiver] == max(v for n, v in private.items() if n != sender)
    assert capsys.readouterr().out.count("eye") >= 3


@pytest.mark.usefixtures("short_reading_heads")
def test_join_network(load, capsys):
    module = load("join_network")
    found = module.main(epochs=1)
    assert list(found) == list(module.METHODS)
    for stages in found.values():
        assert list(stages) == ["joined", "trained on", "all trained on"]
        joined, trained, together = stages.values()
        assert trained["others"] == joined["others"] != together["others"]
        assert trained["private"] != joined["private"]
    assert "all trained on" in capsys.readouterr().out


@pytest.mark.usefixtures("short_reading_heads")
def test_five_agents(load, tmp_path):
    networks = load("five_agents").main(tmp_path, epochs=1)
    assert list(networks) == ["Trained alone", "Sheaf-FRL", "Consensus distillation"]
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 20_000
    settings = ["training.epochs=1", "training.evaluate_every=1"]
    preset = read_experiment("digits", [*settings, "method.name=consensus-distillation"])
    run = run_experiment(preset, tmp_path / "run")
    last = networks["Consensus distillation"]
    assert run.history.evaluation == last.history.evaluation
    assert run.history.ledger.bytes_sent() == last.history.ledger.bytes_sent()


def use_made_texts(monkeypatch, module, number):
    """Let an example load texts of twenty classes whose latents are linear maps of each other."""
    labels = torch.arange(number) % 20
    made = TextDataset("made", tuple(map(str, range(number))), labels, tuple(map(str, range(20))))
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(number, 12, generator=generator) + torch.eye(20, 12)[labels] * 4

    def latents(encoder, texts):
        return source[[int(text) for text in texts]] @ torch.randn(12, 12, generator=generator)

    monkeypatch.setattr(module, "load_texts", lambda name: made)
    monkeypatch.setattr(module, "encode_texts", latents)


def test_change_embedding_model(load, monkeypatch):
    """With made texts and latents of two models: nothing is downloaded."""
    module = load("change_embedding_model")
    use_made_texts(monkeypatch, module, 6000)
    _, (recall, mapped), (exact, native) = module.main(pilots=100).values()
    assert exact == 1
    assert native > 0.3
    assert recall > 0.9
    assert mapped == pytest.approx(native, abs=0.01)
    with pytest.raises(SystemExit, match="below the gate"):
        module.main(pilots=100, gate=1.1)


def test_align_text_encoders(load, monkeypatch, tmp_path, capsys):
    """With made texts and latents of three models: nothing is downloaded."""
    module = load("align_text_encoders")
    use_made_texts(monkeypatch, module, 2600)
    accuracy = module.main(tmp_path)
    assert len(accuracy) == 6
    assert min(accuracy.values()) > 0.4  # eight of the twenty classes cannot be told apart
    assert f"{accuracy['oslo', 'turin']:.3f} on what oslo sent" in capsys.readouterr().out
    assert (tmp_path / "alignment" / "alignment.json").exists()


def test_the_example_has_the_snippet_of_the_readme():
    """What it does with real encoders is what the README shows."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    snippet = readme.split("## Align existing encoders")[1].split("```")[1]
    example = (EXAMPLES / "align_text_encoders.py").read_text()
    calls = [line.partition("#")[0].strip() for line in snippet.splitlines() if "align" in line]
    assert "alignment.send(" in "".join(calls)
    for call in calls:
        shown = call.replace(".pairs)", ")").replace('"alignment"', 'out / "alignment"')
        assert shown in example, shown


def test_text_encoders(load, monkeypatch, capsys):
    """With made texts, `label number`, and made latents: nothing is downloaded."""
    module = load("text_encoders")
    labels = torch.arange(6000) % 20
    made = TextDataset("made", tuple(map(str, range(6000))), labels, tuple(map(str, range(20))))
    generator = torch.Generator().manual_seed(0)

    def latents(encoder, texts):
        rows = labels[[int(text) for text in texts]]
        directions = torch.randn(20, 12, generator=generator)
        return directions[rows] + torch.randn(len(rows), 12, generator=generator)

    monkeypatch.setattr(module, "load_texts", lambda name: made)
    monkeypatch.setattr(module, "encode_texts", latents)
    networks = module.main(epochs=3)
    assert list(networks) == ["alone", "recommended"]
    for network in networks.values():
        assert {a.name: a.dimension for a in network.agents.values()} == {
            name: d for name, (d, _) in module.ENCODERS.items()
        }
        assert len(network.history.evaluation.communication) == 12
    alone, recommended = (n.history.last["communication_accuracy"] for n in networks.values())
    assert recommended > alone > 0.2  # a guess is right in one case of twenty
    shown = capsys.readouterr().out
    assert f"{alone:.3f} alone, {recommended:.3f} recommended" in shown


def test_text_views(load):
    network = load("text_views").main(epochs=6)
    assert network.history.last["private_accuracy"] > 0.7  # a guess gives .33
    assert network.history.last["communication_accuracy"] > 0.7
    assert network.history.evaluation.oracle == {}  # neither takes the other's inputs
    assert len((EXAMPLES / "text_views.py").read_text().splitlines()) < 60


def test_noisy_channels(load, tmp_path):
    module = load("noisy_channels")
    module.AXES = {"snr_db": ("dB", (-20, 20), (20,)), "bits": ("bits", (1, 8), ())}
    module.AXES["erasure"] = ("lost", (1.0,), ())
    found = module.main(tmp_path, epochs=3)
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
    networks = module.main(tmp_path, epochs=1)
    small, large, standard, strict = (
        network for (name, _), network in networks.items() if "distillation" in name
    )
    sent = [module.bytes_per_round(network) for network in (small, large, standard, strict)]
    assert sent == sorted(sent)
    assert module.accuracy(small) < module.accuracy(large)
    assert (tmp_path / "edge_stalks.png").stat().st_size > 20_000


def test_label_free(load):
    module = load("label_free")
    module.SHRINKAGES = (0.5,)
    found = module.main(epochs=4)
    assert list(found) == ["autoencoding", "VICReg", "SimCLR"]
    for _, post_hoc, *linear in found.values():
        assert post_hoc > 0.2  # a guess is right in one case of ten
        assert min(linear) > 0.7


def test_frozen_encoders(load):
    networks = load("frozen_encoders").main(epochs=4)
    assert list(networks) == ["jointly", "post hoc"]
    for network in networks.values():
        assert [a.name for a in network.agents.values() if not a.frozen] == ["ada"]
        assert network.history.evaluation.private["network"] > 0.7
        assert network.history.evaluation.communication["ada", "network"] > 0.3


def test_multi_hop(load):
    tried, routed = load("multi_hop").main(epochs=2)
    assert max(len(path) for path in tried) == 8
    assert max(routed.values()) == routed["the best of all, in hindsight"]
    neighbours = [gain for path, (_, gain, *_) in tried.items() if len(path) == 2]
    assert abs(np.mean(neighbours)) < 0.1  # a neighbour's map is all but the direct one


def test_privacy_attacks(load, monkeypatch):
    module = load("privacy_attacks")
    monkeypatch.delitem(module.METHODS, "epsilon 16")
    monkeypatch.delitem(module.METHODS, "epsilon 4")
    monkeypatch.setattr(attacks, "train_decoder", partial(attacks.train_decoder, epochs=15))
    rows = module.main(epochs=5)
    names = ["standard", "strict", "strict, other edge", "epsilon 64", "epsilon 64 on all"]
    assert list(rows) == names
    recognised = {name: row["recognised"] for name, row in rows.items()}
    assert min(recognised["standard"], recognised["strict"]) > 0.4
    assert recognised["strict, other edge"] < 0.3
