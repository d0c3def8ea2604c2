"""Python and TOML have the same options, with the same defaults, documented once."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from sheafed.channels import Channel
from sheafed.config.experiment import METHODS, OBJECTIVES, Experiment
from sheafed.config.presets import PRESETS
from sheafed.config.reading import parse_experiment, read_experiment
from sheafed.methods import (
    SWBN,
    ZCA,
    DualAscent,
    FedProto,
    GaussianNoise,
    NonCooperative,
    SheafFRL,
    WarmUp,
)
from sheafed.options import documented_options, option_names, tag_key, tag_of
from tests.helpers.option_classes import nested_in, option_classes

CLASSES = option_classes()
REQUIRED = {
    "Constant": {"value": 0.2},
    "CustomMethod": {"factory": "a:b"},
    "DualAscent": {"tolerance": 0.2},
    "GaussianNoise": {"epsilon": 2.0},
    "WarmUp": {"value": 0.2, "rounds": 3},
}
"""Values of the options that have no default."""


def by_name(cls: type) -> str:
    return cls.__name__


def default_of(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def from_toml(cls: type) -> Any:
    """Return what a table with nothing but what it must have becomes."""
    table = dict(REQUIRED.get(cls.__name__, {}))
    if key := tag_key(cls):
        table[key] = tag_of(cls)
    if cls in METHODS:
        return parse_experiment({"method": table}).method
    if cls in OBJECTIVES:
        return parse_experiment({"model": {"objective": table}}).model.objective
    return TypeAdapter(cls).validate_python(table)


def test_the_walk_reaches_nested_options() -> None:
    names = {cls.__name__ for cls in CLASSES}
    assert {cls.__name__ for cls in (*METHODS, *OBJECTIVES)} < names
    assert {"ZCA", "SWBN", "NoWhitening", "MapPolicy", "IdentityMaps", "Distillation"} < names
    assert {"Channel", "GaussianNoise", "Constant", "WarmUp", "DualAscent", "Augmentation"} < names


@pytest.mark.parametrize("cls", CLASSES, ids=by_name)
def test_defaults_are_the_same_in_python_and_in_toml(cls: type) -> None:
    required = REQUIRED.get(cls.__name__, {})
    in_python, in_toml = cls(**required), from_toml(cls)
    assert type(in_toml) is cls
    assert in_toml == in_python
    for field in fields(cls):
        value = getattr(in_toml, field.name)
        assert type(value) is type(getattr(in_python, field.name))
        if field.name in required:
            assert field.default is field.default_factory is MISSING
        elif field.compare:
            assert value == getattr(in_python, field.name) == default_of(field)


@pytest.mark.parametrize("cls", CLASSES, ids=by_name)
def test_what_a_run_keeps_is_read_back(cls: type) -> None:
    made = cls(**REQUIRED.get(cls.__name__, {}))
    adapter = TypeAdapter(cls)
    assert adapter.validate_json(adapter.dump_json(made)) == made


@pytest.mark.parametrize("cls", CLASSES, ids=by_name)
def test_every_option_is_documented_and_everything_documented_is_an_option(cls: type) -> None:
    assert sorted(documented_options(cls)) == sorted(option_names(cls))
    assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES, ids=by_name)
def test_no_number_or_text_is_taken_for_another_type(cls: type) -> None:
    """A bare `int`, `float` or `bool` would convert "3", 3.0 or 1."""
    hints = get_type_hints(cls, include_extras=True)
    for name in option_names(cls):
        assert not {"int", "float", "bool"} & set(bare_types(hints[name])), name


def bare_types(annotation: Any) -> list[str]:
    if isinstance(annotation, type):
        return [annotation.__name__]
    if hasattr(annotation, "__metadata__"):
        return []  # what is annotated is checked
    return [name for part in getattr(annotation, "__args__", ()) for name in bare_types(part)]


def test_what_only_code_can_give_has_no_key() -> None:
    adapter = TypeAdapter(SheafFRL)
    assert "solver" not in adapter.dump_python(SheafFRL())
    assert "solver" not in adapter.json_schema()["properties"]


def test_the_reference_says_of_every_key_what_the_docstring_says() -> None:
    definitions = TypeAdapter(Experiment).json_schema()["$defs"]
    for cls in CLASSES:
        properties = definitions[cls.__name__]["properties"]
        for name, text in documented_options(cls).items():
            assert name == "solver" or properties[name]["description"] == text


def test_every_key_of_a_config_is_described() -> None:
    schema = TypeAdapter(Experiment).json_schema()
    for table in (schema, *schema["$defs"].values()):
        for name, key in table["properties"].items():
            assert "const" in key or key.get("description"), (table["title"], name)


def test_a_preset_says_where_it_deviates() -> None:
    assert SheafFRL() == parse_experiment({}).method == Experiment().method
    of_the_paper = {"pair", "fifteen"}
    for name in set(PRESETS) - of_the_paper:
        method = read_experiment(name).method
        assert (method.exchange_every, method.quantisation) == (8, "int8")
    for name in of_the_paper:
        assert read_experiment(name).method == SheafFRL()


def test_the_defaults_of_the_paper_and_of_the_baselines() -> None:
    assert (SheafFRL().exchange_every, SheafFRL().quantisation) == (1, "none")
    assert FedProto().aggregation == "ema"
    assert (ZCA().shrinkage, SWBN().shrinkage, NonCooperative().shrinkage) == (0.5, 0.1, 0.5)
    assert DualAscent(0.1).largest == 0.1


def test_a_whole_experiment_is_read_back() -> None:
    method = SheafFRL(
        penalty=WarmUp(0.3, rounds=7),
        whitening=SWBN(momentum=0.1),
        maps="identity",
        channel=Channel(snr_db=3, bits=4),
        noise=GaussianNoise(2),
        distillation={},
    )
    experiment = Experiment(method=method)
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment
    assert parse_experiment(experiment.model_dump(mode="json")) == experiment


def test_nested_options_are_found_by_their_types() -> None:
    assert nested_in(FedProto) == [Channel]
