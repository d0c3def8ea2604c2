"""Experiments as data: TOML tables, presets, and the federation that they describe."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.config.custom_method import CustomMethod
    from sheafed.config.experiment import AgentTable, Data, Experiment, Graph, Model, Training
    from sheafed.config.federation import Federation, build_federation
    from sheafed.config.presets import PRESETS
    from sheafed.config.reading import parse_experiment, read_experiment
    from sheafed.config.running import run_experiment
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "PRESETS",
    "AgentTable",
    "CustomMethod",
    "Data",
    "Experiment",
    "Federation",
    "Graph",
    "Model",
    "Training",
    "build_federation",
    "parse_experiment",
    "read_experiment",
    "run_experiment",
]
