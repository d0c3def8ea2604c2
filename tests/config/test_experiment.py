from pathlib import Path

import pytest

from sheafed.config.experiment import Experiment, parse, read
from sheafed.config.presets import PRESETS, preset
from sheafed.errors import ConfigError


def test_everything_has_a_default():
    assert parse({}) == Experiment()


def test_overrides_reach_nested_keys_and_take_bare_words():
    experiment = parse(
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
    parse(tables, ["data.name=mnist"])
    assert tables == {"data": {"name": "digits"}}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("training.epochs=0", "training.epochs is 0: .* greater than or equal to 1"),
        ('model.members=["ada", "zoe"]', "model.members is .*zoe.*, which are .'ada', 'bo', 'cy'"),
        ('model.members=["ada", "ada"]', "model.members is .* must be different agents"),
        ("data.shift=2", "data.shift is 2: .* less than or equal to 1"),
        ("method.name=foo", "method.name is 'foo', must be one of 'sheaf-frl'"),
        ("method.penaltyy=3", "method.penaltyy is not a key; there are name, penalty"),
        (
            "method.channel.snr=3",
            "method.channel.snr is not a key; there are snr_db, erasure, bits",
        ),
        ("method.channel.snr_db=inf", "method.channel.snr_db is inf: .* finite"),
        ("method.channel.bits=33", "method.channel.bits is 33: .* less than or equal to 32"),
        ("method.edge_dim=0", "method.edge_dim is 0: .* greater than or equal to 1"),
        ("method.maps.evry=3", "method.maps.evry is not a key; there are every, source, decay"),
        ("data.nme=mnist", "data.nme is not a key; there are name, partition"),
        ("dta.name=mnist", "dta is not a key; there are data, model"),
        ("training.epochs", "expected an override like"),
        ("seed.x=1", "seed is"),
        ("method.maps.source=xx", "'round', 'all' or 'running'"),
        ("data.split=[0.5,0.5,0.5]", "must sum to 1"),
        ("model.bottleneck=17", "model.bottleneck is 17"),
    ],
)
def test_errors_name_the_key_the_value_and_the_choices(override, text):
    with pytest.raises(ConfigError, match=text):
        parse({}, [override])


def test_options_that_exclude_each_other():
    with pytest.raises(ConfigError, match="not both"):
        parse({"method": {"warm_up_rounds": 3, "tolerance": 0.1}})
    with pytest.raises(ConfigError, match="different names"):
        parse({"model": {"agents": [{"name": "a", "widths": [4]}, {"name": "a", "widths": [4]}]}})
    with pytest.raises(ConfigError, match="has no keys"):
        parse({"seed": 1}, ["seed.deep.er=1"])


def test_files(tmp_path: Path):
    file = tmp_path / "x.toml"
    file.write_text("[training]\nepochs = 7\n")
    assert read(file, ["seed=3"]).training.epochs == 7
    file.write_text("[training\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read(file)
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.toml")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    assert preset(name, ["training.epochs=2"]).training.epochs == 2


def test_unknown_preset():
    with pytest.raises(ConfigError, match="digits, pair, fifteen"):
        preset("mnist")


def test_members_of_a_family_or_agents_of_your_own():
    agents = [{"name": "zoe", "widths": [4]}]
    with pytest.raises(ConfigError, match="not both"):
        parse({"model": {"agents": agents, "members": ["ada"]}})
    with pytest.raises(ConfigError, match=r"model.family is 'six'") as refused:
        parse({"model": {"family": "six", "members": ["ada"]}})
    assert "members" not in str(refused.value)
