"""Images in a config: by a pretrained encoder or as pixels."""

from types import SimpleNamespace

import pytest
import torch

from sheafed.config import build_federation, dataset, parse_experiment, read_experiment
from sheafed.datasets import LabelledDataset
from sheafed.errors import ConfigError

DIMS = {
    "efficientnet-lite0": 5,
    "efficientnet-lite1": 6,
    "efficientnet-lite2": 7,
    "mobilenet-v2": 8,
}


def pictures(name):
    pixels = torch.arange(300 * 3 * 8 * 8).view(300, 3, 8, 8) % 251
    return LabelledDataset(name, pixels.byte(), torch.arange(300) % 10, tuple("0123456789"))


def latents(encoder, images):
    assert images.dtype == torch.uint8
    return images.flatten(1)[:, : DIMS[encoder]] / 255


@pytest.fixture(autouse=True)
def made_images(monkeypatch):
    dims = {name: SimpleNamespace(dim=dim) for name, dim in DIMS.items()}
    monkeypatch.setattr(dataset, "load", pictures)
    monkeypatch.setattr(dataset, "encode_images", latents)
    monkeypatch.setattr(dataset, "image_encoder_info", dims.__getitem__)


def test_the_preset():
    experiment = read_experiment("cifar10", ["data.samples=240", "training.batch_size=8"])
    federation = build_federation(experiment)
    sizes = {agent.name: agent.dimension for agent in federation.agents}
    assert sizes == {"lite0": 48, "lite1": 56, "lite2": 64, "mobilenet": 72}
    assert sorted(federation.graph.degree) == [(name, 2) for name in sorted(sizes)]
    rows = dataset.subset(pictures("").labels, 240)
    used = pictures("").inputs[rows]
    places = [int(identifier.removeprefix("cifar10 ")) for identifier in federation.pilots.ids]
    for agent, table in zip(federation.agents, experiment.model.agents, strict=True):
        seen = latents(table.pretrained, used)
        assert torch.equal(federation.pilots.of(agent.name), seen[places])
        assert agent.data.train.inputs.shape[1:] == (DIMS[table.pretrained],)


def config(*agents):
    named = [{"name": f"agent-{k}", "widths": [4], **agent} for k, agent in enumerate(agents)]
    data = {"name": "cifar10", "partition": "iid", "pilot_classes": "all"}
    return parse_experiment({"data": data, "model": {"agents": named}})


def test_pixels_and_latents_in_one_federation():
    federation = build_federation(
        config({"encoder": "cnn"}, {"pretrained": "mobilenet-v2", "encoder": "linear"})
    )
    pixels, encoded = (federation.pilots.of(agent.name) for agent in federation.agents)
    assert pixels.shape[1:] == (3, 8, 8)
    assert torch.equal(encoded, pixels.flatten(1)[:, :8])


def test_encoders_that_a_run_would_wait_for(monkeypatch):
    def missing(*agents):
        experiment = config({"encoder": "cnn"}, *({"pretrained": name} for name in agents))
        return dataset.missing_latents(experiment.data, experiment.model)

    def are_encoded(encoder, images):
        return encoder == "mobilenet-v2" and len(images) == 300

    monkeypatch.setattr(dataset, "images_are_encoded", are_encoded)
    monkeypatch.setattr(dataset, "missing_files", lambda remote: [])
    both = ("efficientnet-lite0", "mobilenet-v2")
    assert missing(*both, *both) == ["efficientnet-lite0"]
    assert missing("mobilenet-v2") == missing() == []
    monkeypatch.setattr(dataset, "missing_files", lambda remote: remote.files)
    monkeypatch.setattr(dataset, "load", None)  # a data set that is absent is not fetched
    assert missing(*both) == list(both)


def test_what_does_not_suit_images_is_refused():
    both = {"pretrained": "mobilenet-v2", "modality": "fourier", "encoder": "linear"}
    with pytest.raises(ConfigError, match=r"modality 'fourier' and .*gets images as they are"):
        build_federation(config(both))
    with pytest.raises(ConfigError, match=r"'cnn': its pretrained 'mobilenet-v2' has the shape"):
        build_federation(config({"pretrained": "mobilenet-v2"}))
