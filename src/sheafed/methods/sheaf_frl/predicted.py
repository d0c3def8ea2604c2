"""What an agent's head predicts for its neighbours, and whether its pilots have a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sheafed.agents.agent import Agent
from sheafed.errors import InputError
from sheafed.methods.consensus import Consensus, count_classes, is_labelled
from sheafed.methods.node import count_outputs
from sheafed.pilots.policies import PilotPolicy

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.method import SheafFRL


def predicted(method: SheafFRL, agent: Agent) -> tuple[int, int]:
    """Return how many classes and how many numbers an agent's head predicts for its neighbours."""
    if method.distillation is None:
        return 0, 0
    if isinstance(method.distillation, Consensus):
        return (count_classes(agent) if is_labelled(agent) else 0), 0
    predicted = count_outputs(agent)
    return (0, predicted) if agent.regression else (predicted, 0)


def check_single_samples(name: str, policy: PilotPolicy) -> None:
    """Raise if pilots are means of samples: these have no class that could be agreed on."""
    if policy.select(0).groups is not None:
        raise InputError(
            f"agent {name!r}: {type(policy).__name__} has means of samples as pilots, and a "
            "consensus is on the classes of single samples; take another policy, a number of "
            "pilots_per_round, or Distillation() in place of Consensus()"
        )
