"""Agents: encoder, head, data, optimiser, `objectives` and learning rates (`lr_schedules`)."""

from sheafed.agents import lr_schedules, objectives
from sheafed.agents.agent import Agent
from sheafed.agents.optimizers import default_optimizer, paper_optimizer
from sheafed.agents.samples import (
    Batch,
    ByteSamples,
    DatasetSamples,
    LocalData,
    Samples,
    TensorSamples,
)

__all__ = [
    "Agent",
    "Batch",
    "ByteSamples",
    "DatasetSamples",
    "LocalData",
    "Samples",
    "TensorSamples",
    "default_optimizer",
    "lr_schedules",
    "objectives",
    "paper_optimizer",
]
