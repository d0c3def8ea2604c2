"""What a run directory says of method and agents when there is no config."""

import json
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from sheafed.methods import NonCooperative, SheafFRL
from sheafed.training.metadata import describe_module
from sheafed.training.run_settings import method_settings
from tests.helpers.federations import start


def test_the_summary_has_the_settings(tmp_path: Path) -> None:
    run = start("distillation", tmp_path, epochs=1)
    found = json.loads((tmp_path / "summary.json").read_text())["settings"]
    assert found["training"] == {"epochs": 1, "rounds_per_epoch": 5, "evaluate_every": 1}
    assert found["graph"] == {"edges": [["ada", "bob"], ["bob", "cyd"]]}
    assert found["pilots"]["samples"] == run.pilots.total
    assert found["seed"] == 7
    assert found["agents"]["bob"] == {
        "encoder": "Sequential(Linear, Tanh, Dropout, Linear), 81 parameters",
        "latent_size": 4,
        "head": "Sequential",
        "objective": "cross_entropy",
        "metric": "accuracy",
        "optimizer": "Adam",
        "learning_rate": 0.01,
        "batch_size": 7,
        "training_samples": 41,
    }


def test_a_method_is_described_by_the_keys_of_a_config() -> None:
    """As `config.json` of the same experiment has them."""
    from sheafed.config import parse_experiment

    for method in (SheafFRL(penalty=0.3), NonCooperative()):
        config = parse_experiment({"method": {"name": method.name}}, [])
        if isinstance(method, SheafFRL):
            config = parse_experiment({"method": {"name": method.name, "penalty": 0.3}}, [])
        assert method_settings(method) == json.loads(config.model_dump_json())["method"]


def test_parts_that_only_code_can_give_are_text() -> None:
    class Own:
        pass

    @dataclass
    class Method:
        rate: float = 0.5
        schedule: object = None

    assert method_settings(Own()) == {"name": "Own"}
    found = method_settings(Method(schedule=Own()))
    assert found == {"rate": 0.5, "schedule": "Own"}
    json.dumps(found)


def test_many_layers_are_not_listed() -> None:
    deep = nn.Sequential(*(nn.Linear(2, 2) for _ in range(9)))
    assert describe_module(deep) == "Sequential, 54 parameters"
    assert describe_module(nn.Linear(2, 2)) == "Linear, 6 parameters"
