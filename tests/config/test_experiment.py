import tomllib
from importlib import resources
from pathlib import Path

import pytest

from sheafed.config.experiment import Experiment
from sheafed.config.presets import PRESETS
from sheafed.config.reading import parse_experiment, read_experiment
from sheafed.errors import ConfigError
from sheafed.methods import FedProto


def test_everything_has_a_default():
    assert parse_experiment({}) == Experiment()


def test_overrides_reach_nested_keys_and_take_bare_words():
    experiment = parse_experiment(
        {"data": {"name": "digits"}},
        [
            "data.name=mnist",
            "training.epochs=5",
            "method.distillation={}",
            "method.maps.every=epoch",
        ],
    )
    assert experiment.data.name == "mnist"
    assert experiment.training.epochs == 5
    assert experiment.method.distillation.confidence == 0.8
    assert experiment.method.maps.every == "epoch"


def test_overrides_do_not_change_what_was_given():
    tables = {"data": {"name": "digits"}}
    parse_experiment(tables, ["data.name=mnist"])
    assert tables == {"data": {"name": "digits"}}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("training.epochs=0", "training.epochs must be at least 1, got 0"),
        ('model.members=["ada", "zoe"]', "model.members: .*ada, bo, cy.*got .*zoe"),
        ('model.members=["ada", "ada"]', "model.members: must be different agents"),
        ("data.shift=2", "data.shift must be at most 1, got 2"),
        ("method.name=foo", "method.name must be 'sheaf-frl', .* or 'custom', got 'foo'"),
        ("method.penaltyy=3", "unknown key method.penaltyy; allowed keys: name, penalty"),
        (
            "method.channel.snr=3",
            "unknown key method.channel.snr; allowed keys: snr_db, erasure, bits",
        ),
        ("method.channel.snr_db=inf", "method.channel.snr_db must be a finite number, got inf"),
        ("method.channel.bits=33", "method.channel.bits must be at most 32, got 33"),
        ("method.edge_dim=0", "method.edge_dim must be at least 1, got 0"),
        (
            "method.maps.evry=3",
            "unknown key method.maps.evry; allowed keys: kind, every, source, decay",
        ),
        ("data.nme=mnist", "unknown key data.nme; allowed keys: name, partition"),
        ("dta.name=mnist", "unknown key dta; allowed keys: data, model"),
        ("training.epochs", "expected an override like"),
        ("seed.x=1", "seed must be an integer, got {'x': 1}"),
        ("seed=true", "seed must be an integer, got True"),
        ("training.epochs='3'", "training.epochs must be an integer, got '3'"),
        ("training.oracle=1", "training.oracle must be true or false, got 1"),
        ("method.noise=3", "method.noise must be a table, got 3"),
        ("data=3", "data must be a table, got 3"),
        ("method.name=[1]", r"method.name must be .* got \[1\]"),
        ("method.solver=1", "unknown key method.solver; allowed keys"),
        (
            "method.whitening=zcaa",
            "method.whitening must be 'zca', 'swbn' or 'none' or a table with",
        ),
        (
            "method.whitening.kind=zcaa",
            "method.whitening.kind must be 'zca', 'swbn' or 'none', got",
        ),
        ("method.penalty={kind='warm-up', value=1}", "method.penalty.rounds is missing"),
        ("method.penalty=-1", "method.penalty must be at least 0, got -1"),
        ("method.penalty=x", "method.penalty must be a number, got 'x'"),
        ("method.maps.every=0", "method.maps.every must be at least 1 or 'epoch', got 0"),
        ("method.noise={}", "method.noise.epsilon is missing"),
        ("method={privacy='strict', maps='identity'}", "method: identity maps transport nothing"),
        ("method.maps.source=xx", "'round', 'all' or 'running'"),
        ("data.split=[0.5,0.5,0.5]", "must sum to 1"),
        ("model.bottleneck=17", "model.bottleneck must be 16, .* got 17"),
    ],
)
def test_errors_name_the_key_the_value_and_the_choices(override, text):
    with pytest.raises(ConfigError, match=text):
        parse_experiment({}, [override])


def test_options_that_exclude_each_other():
    with pytest.raises(ConfigError, match="different names"):
        parse_experiment(
            {"model": {"agents": [{"name": "a", "widths": [4]}, {"name": "a", "widths": [4]}]}}
        )
    with pytest.raises(ConfigError, match="has no keys"):
        parse_experiment({"seed": 1}, ["seed.deep.er=1"])


def test_another_method_drops_the_options_of_the_previous_one():
    tables = {"method": {"penalty": 3, "privacy": "strict"}}
    assert parse_experiment(tables, ["method.name=fedproto"]).method == FedProto()
    chosen = parse_experiment(tables, ["method.momentum=0.5", "method.name=fedproto"]).method
    assert chosen == FedProto(momentum=0.5)
    assert parse_experiment(tables, ["method.name=sheaf-frl"]).method.privacy == "strict"
    assert parse_experiment({"method": "fedproto"}).method == FedProto()


def test_files(tmp_path: Path):
    file = tmp_path / "x.toml"
    file.write_text("[training]\nepochs = 7\n")
    assert read_experiment(file, ["seed=3"]).training.epochs == 7
    file.write_text("[training\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_experiment(file)
    with pytest.raises(ConfigError, match="neither a file nor a preset"):
        read_experiment(tmp_path / "none.toml")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    assert read_experiment(name, ["training.epochs=2"]).training.epochs == 2


def test_unknown_preset():
    with pytest.raises(ConfigError, match="digits, newsgroups, reuters, cifar10, pair, fifteen"):
        read_experiment("mnist")


def test_members_of_a_family_or_agents_of_your_own():
    agents = [{"name": "zoe", "widths": [4]}]
    with pytest.raises(ConfigError, match="not both"):
        parse_experiment({"model": {"agents": agents, "members": ["ada"]}})
    with pytest.raises(ConfigError, match=r"model.family must be .*got 'six'") as refused:
        parse_experiment({"model": {"family": "six", "members": ["ada"]}})
    assert "members" not in str(refused.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_state_what_their_figures_were_measured_with(preset: str) -> None:
    """A default that changes must not change a preset."""
    text = resources.files("sheafed.config").joinpath("toml", f"{preset}.toml").read_text()
    stated = tomllib.loads(text)["training"]
    assert {"rounds_per_epoch", "optimizer", "learning_rate", "weight_decay"} <= set(stated)
    assert stated["rounds_per_epoch"] == "smallest"
