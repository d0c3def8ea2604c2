"""Agents: encoder, head, data, `objectives` and learning-rate schedules (`lr_schedules`)."""

from sheafed.agents import lr_schedules, objectives
from sheafed.agents.agent import Agent
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
    "lr_schedules",
    "objectives",
]
