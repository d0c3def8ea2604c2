import pytest
import torch

from sheafed.agents.objectives import (
    Augmentation,
    Autoencoding,
    OnlineProbe,
    PseudoLabels,
    SimCLR,
    VICReg,
)
from sheafed.config.experiment import Experiment
from sheafed.config.federation import build_federation
from sheafed.config.reading import parse_experiment, read_experiment
from sheafed.errors import ConfigError
from sheafed.training import train

OWN = [{"name": "a", "encoder": "mlp", "widths": [12, 8]}, {"name": "b", "widths": [4, 6]}]


def agents_of(experiment):
    return {agent.name: agent for agent in build_federation(experiment).agents}


def own(**changes):
    first = OWN[0] | changes
    return parse_experiment({"model": {"agents": [first, OWN[1]]}, "graph": {"kind": "line"}})


@pytest.mark.parametrize(
    ("name", "kind"), [("autoencoding", Autoencoding), ("vicreg", VICReg), ("simclr", SimCLR)]
)
def test_an_agent_without_labels(name, kind):
    a, b = agents_of(own(objective=name, labels=False)).values()
    assert type(a.objective) is kind
    assert a.head is None
    assert a.data.train.targets is None
    assert a.data.test.targets is not None  # to evaluate by, alone
    assert b.head is not None
    with a.rng_context():
        loss = a.objective(a, a.next_batch())
    assert loss.requires_grad


def test_labels_train_the_head_alone_beside_an_objective_that_needs_none():
    a, _ = agents_of(own(objective="vicreg")).values()
    assert type(a.objective) is OnlineProbe
    assert type(a.objective.objective) is VICReg
    assert a.head is not None
    assert a.data.train.targets is not None


def test_options_of_an_objective():
    table = {"name": "simclr", "temperature": 0.2, "widths": [7], "augmentation": {"noise": 0.3}}
    a, _ = agents_of(own(objective=table, labels=False)).values()
    assert a.objective.options.temperature == 0.2
    assert a.objective.options.augmentation == Augmentation(noise=0.3)
    assert a.objective.projector(torch.zeros(2, 8)).shape == (2, 7)


def test_pseudo_labels_keep_a_fraction_of_the_labels():
    experiment = own(objective={"name": "pseudo-labels", "labelled": 0.2, "confidence": 0.9})
    a, b = agents_of(experiment).values()
    assert isinstance(a.objective, PseudoLabels)
    assert a.objective.confidence == 0.9
    targets = a.data.train.targets
    known = targets >= 0
    assert float(known.double().mean()) == pytest.approx(0.2, abs=0.03)
    assert bool((targets[~known] == -1).all())
    assert torch.equal(agents_of(experiment)["a"].data.train.targets, targets)
    assert bool((b.data.train.targets >= 0).all())


def test_families():
    chosen = {
        "objective": "autoencoding",
        "objectives": {"ada": "vicreg", "bo": "cross-entropy"},
        "unlabelled": ["ada", "eli"],
    }
    agents = agents_of(parse_experiment({"model": chosen}))
    kinds = {name: getattr(a.objective, "objective", a.objective) for name, a in agents.items()}
    assert type(kinds["ada"]) is VICReg
    assert kinds["bo"].__name__ == "cross_entropy"
    assert {type(kinds[name]) for name in ("cy", "dee", "eli")} == {Autoencoding}
    assert [name for name, a in agents.items() if a.head is None] == ["ada", "eli"]


def test_the_command_line_and_the_copy_in_a_run():
    given = ["model.objectives.ada=vicreg", 'model.unlabelled=["ada"]']
    experiment = read_experiment("digits", given)
    assert experiment.model.objectives["ada"].name == "vicreg"
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment


def test_others_are_not_touched():
    """Who else learns how decides no agent's weights or data."""
    plain, mixed = agents_of(own()), agents_of(own(objective="vicreg", labels=False))
    for p, q in zip(plain["b"].parameters, mixed["b"].parameters, strict=True):
        assert torch.equal(p, q)
    for p, q in zip(plain["a"].encoder.parameters(), mixed["a"].encoder.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"unlabelled": ["ada"]}, "'cross-entropy' of agent 'ada' needs labels.*choose one of a"),
        ({"objectives": {"zoe": "vicreg"}}, r"unknown agent zoe in objectives .*ada, bo"),
        ({"objective": "vicrag"}, "model.objective must be 'cross-entropy', .*, got 'vicrag'"),
        ({"objective": {"name": "vicreg", "tau": 1}}, "unknown key model.objective.tau; allowed"),
        (
            {"objective": {"name": "simclr", "temperature": 0}},
            "model.objective.temperature must be .*got 0",
        ),
        (
            {"objective": {"name": "pseudo-labels", "labelled": 0}},
            "model.objective.labelled must be .*got 0",
        ),
        ({"agents": OWN, "objectives": {"a": "vicreg"}}, "objectives and unlabelled are for famil"),
        ({"agents": [OWN[0] | {"labels": False}]}, "of agent 'a' needs labels"),
    ],
)
def test_what_is_refused(model, text):
    with pytest.raises(ConfigError, match=text):
        parse_experiment({"model": model})


def test_a_network_with_every_kind_trains():
    specs = [
        OWN[0] | {"objective": "vicreg", "labels": False},
        OWN[1] | {"objective": {"name": "pseudo-labels", "labelled": 0.5}},
        {"name": "c", "encoder": "mlp", "widths": [5], "objective": "simclr"},
        {"name": "d", "encoder": "mlp", "widths": [6], "objective": "autoencoding"},
    ]
    federation = build_federation(
        parse_experiment({"model": {"agents": specs}, "graph": {"kind": "complete"}})
    )
    run = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=1,
        rounds_per_epoch=3,
    )
    assert set(run.history.evaluation.private) == {"b", "c", "d"}
    assert {receiver for _, receiver in run.history.evaluation.communication} == {"b", "c", "d"}
    assert ("a", "b") in run.history.evaluation.communication


@pytest.mark.parametrize("name", ["vicreg", "simclr", "pseudo-labels"])
@pytest.mark.parametrize("modality", ["fourier", "profiles"])
def test_what_is_no_image_is_not_shifted_or_turned(name, modality):
    with pytest.raises(
        ConfigError,
        match=rf"'a' cannot have the objective '{name}'.*modality '{modality}'.*augmentation =",
    ):
        build_federation(own(objective=name, modality=modality))
    still = {"name": name, "augmentation": {"shift": 0, "rotation": 0, "erasing": 0}}
    a, _ = agents_of(own(objective=still, modality=modality)).values()
    with a.rng_context():
        assert a.objective(a, a.next_batch()).requires_grad


def test_the_augmentations_of_pseudo_labels():
    a, _ = agents_of(own(objective="pseudo-labels")).values()
    assert a.objective == PseudoLabels()
    table = {"name": "pseudo-labels", "augmentation": {"shift": 0.25, "noise": 0.2}}
    a, _ = agents_of(own(objective=table)).values()
    assert a.objective.augmentation == Augmentation(shift=0.25, noise=0.2)
    weak = a.objective._weak_augmentation()
    assert weak == Augmentation(shift=0.25, rotation=0, erasing=0, noise=0)
