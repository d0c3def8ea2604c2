"""What a process finds that has nothing of a training but its files."""

from pathlib import Path
from typing import Any

import torch

import sheafed
from sheafed import Network
from sheafed.evaluation import Evaluation
from tests.helpers.federations import agents, normal_latents, pilots


def reborn() -> list[sheafed.Agent]:
    """The three agents, with weights that nothing has trained."""
    team = agents()
    for agent in team:
        for parameter in agent.parameters:
            torch.nn.init.constant_(parameter, 0.1)
    return team


def findings(network: Network) -> tuple[Evaluation, dict[str, Any]]:
    """Return an evaluation, and what a fixed batch of latents becomes between all neighbours."""
    sent = {}
    for name, node in network.nodes.items():
        latents = normal_latents(node.agent.dimension)
        for other in node.neighbours:
            sent[f"{name} {other}"] = network.send(latents, name, other)
            sent[f"{name} {other} classes"] = network.classify(latents, name, other)
    return network.evaluate(), {key: value.numpy().tobytes() for key, value in sent.items()}


def load_all(directory: Path) -> dict[str, tuple[Evaluation, dict[str, Any]]]:
    """Load every run of a directory; return what is found of each."""
    return {
        path.name: findings(sheafed.load(path, reborn(), pilots=pilots()))
        for path in sorted(directory.iterdir())
    }
