"""Texts in a config: agents that see them by a pretrained encoder each."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch

from sheafed import datasets
from sheafed.config import build_federation, dataset, parse_experiment, read_experiment
from sheafed.config.flops import step_flops
from sheafed.datasets import TextDataset
from sheafed.errors import ConfigError
from sheafed.evaluation import evaluate_locally
from sheafed.pretrained.texts.catalog import text_encoder_info
from sheafed.training import train

DIMS = {
    "glove-50d": 5,
    "minilm-l6": 8,
    "mpnet-base": 12,
    "paraphrase-minilm-l3": 8,
    "use-multilingual": 7,
    "wordllama-256": 6,
}
CLASSES = {"20newsgroups": 20, "reuters-r8": 8}


@cache
def tables(encoder):
    """A direction per class, and noise of every text's own."""
    generator = torch.Generator().manual_seed(len(encoder))
    return [torch.randn(n, DIMS[encoder], generator=generator) for n in (20, 720)]


def latents(encoder, texts):
    """Return the latents of made texts, which are `class number`."""
    directions, noise = tables(encoder)
    labels, numbers = torch.tensor([[int(word) for word in text.split()] for text in texts]).T
    return directions[labels] + 0.3 * noise[numbers]


def texts_of(name):
    labels = torch.arange(720) % CLASSES[name]
    texts = tuple(f"{label} {number}" for number, label in enumerate(labels.tolist()))
    return TextDataset(name, texts, labels, tuple(map(str, range(CLASSES[name]))))


@pytest.fixture(autouse=True)
def made_texts(monkeypatch):
    dims = {name: SimpleNamespace(dim=dim) for name, dim in DIMS.items()}
    monkeypatch.setattr(dataset, "load_texts", texts_of)
    monkeypatch.setattr(dataset, "encode_texts", latents)
    monkeypatch.setattr(dataset, "text_encoder_info", dims.__getitem__)


def small(preset, *overrides):
    return read_experiment(preset, ["data.samples=600", "training.batch_size=8", *overrides])


@pytest.mark.parametrize("preset", ["newsgroups", "reuters"])
def test_the_presets(preset):
    federation = build_federation(small(preset))
    assert {a.name: a.dimension for a in federation.agents} == {
        "glove": 48,
        "minilm": 72,
        "mpnet": 80,
        "paraphrase": 60,
        "use": 64,
        "wordllama": 56,
    }
    assert federation.pilots.total == (100 if preset == "newsgroups" else 120)
    assert federation.graph.number_of_edges() == 6
    assert len(federation.labels) == 600
    assert isinstance(federation.agents[0].optimizer, torch.optim.AdamW)


def test_every_agent_sees_the_texts_by_its_own_encoder():
    experiment = small("newsgroups")
    federation = build_federation(experiment)
    rows = datasets.subset(torch.arange(720) % 20, 600)
    used = [texts_of("20newsgroups").texts[row] for row in rows]
    places = [int(identifier.removeprefix("20newsgroups ")) for identifier in federation.pilots.ids]
    for agent, table in zip(federation.agents, experiment.model.agents, strict=True):
        seen = latents(table.pretrained, used)
        assert torch.equal(federation.pilots.of(agent.name), seen[places])
        own = agent.data.train
        assert all(
            (seen[rows % 20 == label] == x).all(1).any()
            for x, label in zip(own.inputs, own.targets, strict=True)
        )
        assert len(own) == pytest.approx(0.4 * 500 / 6, abs=12)
    alone = build_federation(experiment, only=["use"])
    assert list(alone.pilots.inputs) == ["use"]  # needs no encoder of another agent
    assert alone.pilots.digest() == federation.pilots.digest()
    assert step_flops(experiment)["use"] == 2 * 8 * (2 * 7 * 64 + 3 * 64 * 20)


def test_encoders_of_texts_that_a_run_would_wait_for(monkeypatch):
    monkeypatch.setattr(dataset, "missing_files", lambda remote: [])
    monkeypatch.setattr(dataset, "texts_are_encoded", lambda name, texts: name != "minilm-l6")
    experiment = small("newsgroups")
    assert dataset.missing_latents(experiment.data, experiment.model) == ["minilm-l6"]


def test_the_oracle_encoder_is_that_of_the_receiver():
    federation = build_federation(small("newsgroups", "training.epochs=1"))
    network = train(
        federation.agents, federation.graph, federation.method, federation.pilots, epochs=1
    )
    found = evaluate_locally(network.nodes)
    assert sorted(found.oracle) == sorted(found.communication)
    sender, receiver = network.agents["use"], network.agents["wordllama"]
    test, texts = sender.data.test, texts_of("20newsgroups").texts
    sent = latents("use-multilingual", texts)
    rows = [int((sent == x).all(1).nonzero()) for x in test.inputs]
    own = latents("wordllama-256", texts)[rows]
    with receiver.inference(), torch.no_grad():
        guessed = receiver.head(receiver.encode(own)).argmax(1)
    right = float((guessed == test.targets).float().mean())
    assert found.oracle["use", "wordllama"] == pytest.approx(right)


def with_agent(data, **agent):
    tables = {
        "data": {"name": data},
        "model": {"agents": [{"name": "ada", "widths": [4], **agent}]},
    }
    return parse_experiment(tables)


@pytest.mark.parametrize(
    ("data", "agent", "message"),
    [
        ("20newsgroups", {"encoder": "mlp"}, r"'ada' needs pretrained: .*20newsgroups are texts"),
        (
            "digits",
            {"pretrained": "glove-50d"},
            r"'ada' cannot have the pretrained 'glove-50d': unknown image encoder",
        ),
        (
            "20newsgroups",
            {"pretrained": "glove-50d", "modality": "fourier", "encoder": "linear"},
            r"'ada' cannot have the modality 'fourier' and .*'glove-50d', which gets texts as they",
        ),
        ("20newsgroups", {"pretrained": "glove-50d"}, r"'cnn'.*'glove-50d' has the shape \(5,\)"),
        (
            "20newsgroups",
            {"pretrained": "glove-50d", "encoder": "linear", "objective": "vicreg"},
            "'vicreg' with its defaults.*pretrained 'glove-50d' of 20newsgroups is none",
        ),
    ],
)
def test_what_does_not_suit_the_samples_is_refused(data, agent, message):
    with pytest.raises(ConfigError, match=message):
        build_federation(with_agent(data, **agent))


def test_a_family_has_no_encoder_of_texts():
    with pytest.raises(ConfigError, match=r"'ada' needs pretrained.*\[\[model.agents\]\]"):
        build_federation(parse_experiment({"data": {"name": "reuters-r8"}}))


def test_an_unknown_encoder_is_refused(monkeypatch):
    monkeypatch.setattr(dataset, "text_encoder_info", text_encoder_info)
    with pytest.raises(ConfigError, match=r"'ada' cannot have the pretrained 'bert': unknown"):
        build_federation(with_agent("20newsgroups", pretrained="bert", encoder="linear"))


def test_some_samples_of_images_keep_the_mixture_of_classes():
    labels = build_federation(read_experiment("digits", ["data.samples=500"])).labels
    assert len(labels) == 500
    with pytest.raises(ConfigError, match=r"data.samples must be at most 1797.*digits, got 2000"):
        build_federation(read_experiment("digits", ["data.samples=2000"]))
    assert (
        labels.bincount() - datasets.load("digits").labels.bincount() * 500 / 1797
    ).abs().max() < 2


def test_an_unknown_data_set_is_refused():
    with pytest.raises(ConfigError, match=r"unknown data set 'imdb'.*digits, .*20newsgroups"):
        build_federation(read_experiment("digits", ["data.name=imdb"]))
