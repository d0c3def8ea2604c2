from collections import Counter

import networkx as nx
import pytest
import torch

from sheafed.agents.samples import TensorSamples
from sheafed.config import federation as building
from sheafed.config.dataset import viewed_images
from sheafed.config.experiment import Data
from sheafed.config.federation import build_federation
from sheafed.config.flops import step_flops
from sheafed.config.reading import parse_experiment, read_experiment
from sheafed.datasets import from_arrays, modalities
from sheafed.errors import ConfigError, UnusedSamplesWarning
from sheafed.methods import (
    SWBN,
    ZCA,
    ComFed,
    Constant,
    DualAscent,
    FedMuscle,
    FedProto,
    GaussianNoise,
    IdentityMaps,
    MapPolicy,
    NonCooperative,
    NoWhitening,
    SheafFRL,
    WarmUp,
)


@pytest.fixture
def mnist_shaped(monkeypatch):
    """Random images of MNIST's shape and size of label set, so that no file is needed."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3000, 1, 28, 28), dtype=torch.uint8, generator=generator)
    made = from_arrays(images, torch.arange(3000) % 10)
    monkeypatch.setattr(building, "load_dataset", lambda name: viewed_images(made))


def test_the_digits_preset():
    federation = build_federation(read_experiment("digits"))
    assert {a.name: a.dimension for a in federation.agents} == {
        "ada": 32,
        "bo": 24,
        "cy": 40,
        "dee": 16,
        "eli": 28,
    }
    assert {a.classes for a in federation.agents} == {tuple("0123456789")}
    assert federation.graph.number_of_edges() == 7
    parts = [a.data for a in federation.agents]
    used = sum(len(d.train) + len(d.validation) + len(d.test) for d in parts)
    assert used + federation.pilots.total == 1797
    for d in parts:
        total = len(d.train) + len(d.validation) + len(d.test)
        assert abs(len(d.train) / total - 0.6) < 0.05


def test_some_members_of_a_family(mnist_shaped):
    some = ["agent-12", "agent-02"]
    federation = build_federation(
        parse_experiment({"model": {"family": "fifteen", "members": some}})
    )
    assert {a.name: a.dimension for a in federation.agents} == {"agent-12": 80, "agent-02": 64}
    assert set(federation.partition) == set(federation.graph.nodes) == set(some)


def test_a_share_of_the_agents_is_what_it_is_among_all():
    whole, share = (
        build_federation(read_experiment("digits")),
        build_federation(read_experiment("digits"), only=["dee", "bo"]),
    )
    assert [agent.name for agent in share.agents] == ["bo", "dee"]
    assert nx.utils.graphs_equal(share.graph, whole.graph)
    assert share.pilots.digest() == whole.pilots.digest()
    others = {agent.name: agent for agent in whole.agents}
    for agent in share.agents:
        other = others[agent.name]
        for mine, theirs in zip(agent.parameters, other.parameters, strict=True):
            assert torch.equal(mine, theirs)
        for split in ("train", "validation", "test"):
            mine, theirs = getattr(agent.data, split), getattr(other.data, split)
            assert torch.equal(mine.inputs, theirs.inputs)
            assert torch.equal(mine.targets, theirs.targets)


def test_costs_are_the_multiply_adds_of_a_step():
    """Of the two without convolutions, counted by hand: outputs, and gradients of both factors."""
    layers = {"bo": [(64, 96), (96, 24), (24, 32), (32, 10)]}
    layers["dee"] = [(64, 64), (64, 16), (16, 32), (32, 10)]
    counted = step_flops(read_experiment("digits", ["training.batch_size=7"]))
    assert list(counted) == ["ada", "bo", "cy", "dee", "eli"]
    for name, sizes in layers.items():
        products = [a * b for a, b in sizes]
        inputs_have_no_gradient = products[0]
        assert counted[name] == 2 * 7 * (3 * sum(products) - inputs_have_no_gradient)
    assert counted["cy"] > counted["eli"] > counted["bo"]


def test_the_network_preset(mnist_shaped):
    federation = build_federation(read_experiment("fifteen"))
    assert len(federation.agents) == 15
    assert federation.graph.number_of_edges() == 42
    assert sum(p.numel() for a in federation.agents for p in a.parameters) == 3_411_690
    assert {a.max_grad_norm for a in federation.agents} == {1.0}
    group = federation.agents[0].optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.01, 0.9, 5e-4)


def test_the_pair_preset(mnist_shaped):
    federation = build_federation(
        read_experiment("pair", ["model.bottleneck=16", "data.train_fraction=0.5"])
    )
    assert [a.dimension for a in federation.agents] == [16, 16]
    assert sum(p.numel() for a in federation.agents for p in a.parameters) == 3_344
    whole = build_federation(read_experiment("pair", ["model.bottleneck=16"]))
    for half, full in zip(federation.agents, whole.agents, strict=True):
        assert len(half.data.train) == round(len(full.data.train) / 2)
        assert len(half.data.test) == len(full.data.test)
    image, _ = federation.agents[0].data.train.batch(torch.tensor([0]))
    assert 0 <= float(image.min()) < float(image.max()) <= 1


def test_the_seed_decides_and_nothing_else():
    def weights(federation):
        return torch.cat([p.detach().flatten() for a in federation.agents for p in a.parameters])

    torch.manual_seed(1)
    one = build_federation(read_experiment("digits", ["seed=4"]))
    torch.manual_seed(2)
    same, other = (
        build_federation(read_experiment("digits", ["seed=4"])),
        build_federation(read_experiment("digits", ["seed=5"])),
    )
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))
    assert torch.equal(one.pilots.inputs, same.pilots.inputs)
    assert one.partition["ada"].tolist() != other.partition["ada"].tolist()


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "pathological", "shards"])
def test_every_partition_can_be_named(kind):
    federation = build_federation(
        read_experiment("digits", [f"data.partition={kind}", "data.pilot_classes=all"])
    )
    assert federation.pilots.total == round(0.15 * 1797)
    assert sum(len(i) for i in federation.partition.values()) == 1797 - round(0.15 * 1797)


def test_an_agent_without_samples_is_named():
    overrides = ["data.partition=dirichlet", "data.concentration=0.001", "seed=3"]
    with pytest.raises(ConfigError, match=r"of digits: \d of 5 agents get no sample: .*draw again"):
        build_federation(read_experiment("digits", overrides))


def test_pilots_keep_to_classes_that_all_observe():
    agents = [
        {"name": "a", "widths": [4], "target_classes": [0, 1, 2]},
        {"name": "b", "widths": [4], "target_classes": [1, 2, 3]},
    ]
    tables = {"data": {"shift": 1.0}, "model": {"agents": agents}, "graph": {"kind": "line"}}
    with pytest.warns(UnusedSamplesWarning, match=r"classes \[4, 5, 6, 7, 8, 9\]"):
        federation = build_federation(parse_experiment(tables))
    everything = building.load_dataset(Data())
    expected = sum(int(everything.labels[i] in (1, 2)) for i in pilots_of(parse_experiment(tables)))
    assert federation.pilots.total == expected
    agents[1]["target_classes"] = [5]
    with (
        pytest.warns(UnusedSamplesWarning),
        pytest.raises(ConfigError, match="no class is observed by every agent"),
    ):
        build_federation(parse_experiment(tables))


def pilots_of(experiment):
    """Redraw the held-out tenth as the code must have drawn it."""
    from sheafed.seeds import generator

    order = torch.randperm(1797, generator=generator(experiment.seed, "partition"))
    return order[: round(1797 * experiment.data.pilot_fraction)].tolist()


VIEWING = {
    "eye": {"widths": [4, 6]},
    "ear": {"encoder": "mlp", "widths": [7, 5], "modality": "fourier"},
    "wave": {"encoder": "cnn", "widths": [3], "modality": "fourier"},
    "edge": {"encoder": "mlp", "widths": [6, 4], "modality": "gradients"},
    "sum": {"encoder": "mlp", "widths": [6, 3], "modality": "profiles"},
}


def viewing(**changes):
    agents = [{"name": name, **spec, **changes.get(name, {})} for name, spec in VIEWING.items()]
    return parse_experiment({"model": {"agents": agents}, "graph": {"kind": "complete"}})


def test_agents_of_different_modalities_share_pilots_by_sample():
    federation = build_federation(viewing())
    images = building.load_dataset(Data()).inputs
    rows = [int(identifier.removeprefix("digits ")) for identifier in federation.pilots.ids]
    assert rows == sorted(pilots_of(viewing()))
    expected = {
        "eye": images[rows],
        "ear": modalities.fourier(images[rows]),
        "wave": modalities.fourier(images[rows]),
        "edge": modalities.gradients(images[rows]),
        "sum": modalities.profiles(images[rows]),
    }
    assert federation.pilots.inputs.keys() == expected.keys()
    for agent in federation.agents:
        assert torch.equal(federation.pilots.of(agent.name), expected[agent.name])
        train = agent.data.train
        assert train.inputs.shape[1:] == expected[agent.name].shape[1:]
        assert agent.encode(train.inputs[:3]).shape == (3, agent.dimension)
    assert federation.pilots.of("ear") is federation.pilots.of("wave")
    mine, order = federation.agents[1], federation.partition["ear"]
    seen = modalities.fourier(images[order])
    assert all((seen == row).flatten(1).all(1).any() for row in mine.data.test.inputs)
    assert step_flops(viewing())["ear"] == 2 * 64 * (2 * (40 * 7 + 7 * 5 + 5 * 10) + 7 * 5 + 5 * 10)


def test_a_process_of_one_agent_means_the_same_pilots():
    whole = build_federation(viewing()).pilots.digest()
    assert {build_federation(viewing(), only=[name]).pilots.digest() for name in VIEWING} == {whole}
    assert build_federation(viewing(), only=[]).pilots.digest() == whole


def test_modalities_that_cannot_be():
    with pytest.raises(ConfigError, match=r"'sum'.*'cnn'.*'profiles' has the shape \(1, 16\)"):
        build_federation(viewing(sum={"encoder": "cnn"}))
    with pytest.raises(ConfigError, match=r"modality must be 'pixels', 'fourier'.*got 'smell'"):
        viewing(ear={"modality": "smell"})


def test_vectors_have_no_other_modality(monkeypatch):
    vectors = from_arrays(torch.rand(300, 9), torch.arange(300) % 10)
    monkeypatch.setattr(building, "load_dataset", lambda name: viewed_images(vectors))
    with pytest.raises(ConfigError, match=r"'ear' cannot have the modality 'fourier'.*\(9,\)"):
        build_federation(viewing(eye={"encoder": "mlp"}, wave={"encoder": "mlp"}))


@pytest.mark.parametrize(
    ("graph", "edges"),
    [("complete", 10), ("ring", 5), ("line", 4), ("star", 4), ("erdos-renyi", None)],
)
def test_every_graph_can_be_named(graph, edges):
    federation = build_federation(read_experiment("digits", [f"graph.kind={graph}"]))
    assert edges is None or federation.graph.number_of_edges() == edges


def test_edges_by_hand():
    overrides = ["graph.kind=edges", 'graph.edges=[["ada","bo"],["bo","cy"],["cy","dee"]]']
    with pytest.raises(Exception, match="eli"):
        build_federation(read_experiment("digits", overrides))


def test_methods():
    def made(**table):
        return parse_experiment({"method": table}).method

    assert made(name="non-cooperative", whitening="private") == NonCooperative(whitening="private")
    assert made(penalty=0.5) == SheafFRL(penalty=0.5)
    assert made(penalty={"kind": "constant", "value": 0.5}).penalty == Constant(0.5)
    assert made(penalty={"kind": "warm-up", "value": 0.5, "rounds": 9}).penalty == WarmUp(0.5, 9)
    assert made(penalty={"kind": "dual-ascent", "tolerance": 0.2}).penalty == DualAscent(0.2)
    assert made(whitening={"kind": "swbn"}).whitening == SWBN()
    assert made(whitening={"shrinkage": 0.3}).whitening == ZCA(0.3)
    assert made(whitening="none").whitening == NoWhitening()
    assert made(maps={"kind": "identity"}).maps == IdentityMaps()
    assert made(maps={"source": "all"}).maps == MapPolicy(source="all")
    assert made(distillation={"confidence": 0.5}).distillation.confidence == 0.5
    assert made(privacy="strict").privacy == "strict"
    assert made(noise={"epsilon": 4, "clip": 0.5}).noise == GaussianNoise(4, 1e-5, 0.5)
    assert made(name="fedproto", penalty=2) == FedProto(2, "ema")
    assert made(name="fedmuscle", pilots_per_round=9) == FedMuscle(pilots_per_round=9)
    assert made(name="comfed", projection=8) == ComFed(projection=8)


def rows_of(samples):
    """The images and labels of some samples, as a multiset."""
    images = (samples.inputs.float() / samples.inputs.max()).flatten(1)
    pairs = zip(images.tolist(), samples.targets.tolist(), strict=True)
    return Counter((tuple(image), label) for image, label in pairs)


def test_controls_add_labelled_pilots_or_the_training_data_of_all():
    private, labelled, pooled = (
        {a.name: a.data for a in build_federation(read_experiment("digits", overrides)).agents}
        for overrides in ([], ["data.control=labelled-pilots"], ["data.control=pooled"])
    )
    everything = building.load_dataset(Data())
    held = Counter()
    for data in private.values():
        for part in (data.train, data.validation, data.test):
            held += rows_of(part)
    # The pilots are what no agent holds; all classes are common to all agents here.
    pilots = rows_of(TensorSamples(everything.float_inputs(), everything.labels)) - held
    assert pilots.total() == build_federation(read_experiment("digits")).pilots.total
    union = sum((rows_of(data.train) for data in private.values()), Counter())
    for name, data in private.items():
        assert rows_of(labelled[name].train) == rows_of(data.train) + pilots
        assert rows_of(pooled[name].train) == union
        for part in ("validation", "test"):
            own = getattr(data, part).inputs
            assert torch.equal(getattr(labelled[name], part).inputs, own)
            assert torch.equal(getattr(pooled[name], part).inputs, own)


def test_an_epoch_of_a_control_has_the_rounds_of_its_data():
    plain, pooled = (
        build_federation(read_experiment("digits", [f"data.control={control}"]))
        for control in ("none", "pooled")
    )
    union = sum(len(agent.data.train) for agent in plain.agents)
    assert pooled.rounds_per_epoch == union // 32 > plain.rounds_per_epoch


def test_all_agents_have_the_metric_of_the_config() -> None:
    given = ["data.train_fraction=0.4", "training.metric=macro_f1"]
    federation = build_federation(read_experiment("digits", given))
    assert {agent.metric.name for agent in federation.agents} == {"macro_f1"}
    with pytest.raises(ConfigError, match=r"training.metric must be .*macro_f1"):
        read_experiment("digits", ["training.metric=r2"])
