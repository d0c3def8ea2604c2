"""Experiments as data: TOML tables, presets, and the federation that they describe."""

from sheafed.config.custom_method import CustomMethod
from sheafed.config.experiment import AgentTable, Data, Experiment, Graph, Model, Training
from sheafed.config.federation import Federation, build_federation
from sheafed.config.reading import PRESETS, parse_experiment, read_experiment
from sheafed.config.running import run_experiment

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
