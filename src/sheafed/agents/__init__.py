"""Agents: model, data, objective and randomness of one participant."""

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Batch, LocalData, Samples

__all__ = ["Agent", "Batch", "LocalData", "Samples"]
