"""The reader of configs."""

from importlib import resources
from pathlib import Path

from fuzzing.targets import Target, WronglyAcceptedError
from sheafed.config.experiment import Experiment
from sheafed.config.reading import PRESETS, read_experiment
from sheafed.errors import ConfigError

OWN = """
seed = 3
[data]
name = "digits"
split = [0.6, 0.2, 0.2]
[[model.agents]]
name = "ada"
widths = [8, 16]
[[model.agents]]
name = "bo"
widths = [4]
head = [32]
target_classes = [0, 1, 2]
[graph]
kind = "edges"
edges = [["ada", "bo"]]
[method]
name = "sheaf-frl"
penalty = 0.5
distillation = {}
[training]
epochs = 3
learning_rate = 1e-3
"""


def target(directory: Path) -> Target:
    path = directory / "config.toml"

    def check(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            experiment = read_experiment(path)
        except ConfigError:
            return False
        if Experiment.model_validate_json(experiment.model_dump_json()) != experiment:
            raise WronglyAcceptedError("it is another one when it is written and read again")
        return True

    folder = resources.files("sheafed.config").joinpath("toml")
    presets = [folder.joinpath(f"{name}.toml").read_bytes() for name in PRESETS]
    return Target("configs", [OWN.encode(), *presets], check)
