"""What the processes of a training know of the agents in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import OnlineProbe
from sheafed.agents.samples import TensorSamples
from sheafed.errors import InputError
from sheafed.training.epochs import batches, steps_per_pass
from sheafed.training.process_group import ProcessGroup
from sheafed.training.scores import metric_signs

FEW_LAYERS = 8


@dataclass(frozen=True)
class AgentMetadata:
    """One agent, without its data and its weights."""

    rank: int
    """The process that it is in."""
    encoder: str
    dimension: int
    head: str | None
    optimizer: str
    learning_rate: float | None
    """At the start of the training."""
    scheduler: str | None
    hyperparameters: dict[str, Any]
    """At the start too."""
    device: str
    batch_size: int
    training_samples: int
    training_digest: str | None
    """Of training data that are in memory; None of others, which may change as they are read."""
    has_validation: bool
    learns: bool
    objective: str
    """As text."""
    metric: str
    """Its name."""
    greater_is_better: bool
    """Of the metric."""

    @property
    def batches(self) -> int:
        """How many whole batches its training data have."""
        return batches(self.training_samples, self.batch_size)

    @property
    def steps_per_pass(self) -> float:
        """After how many steps it has seen as many samples as it has."""
        return steps_per_pass(self.training_samples, self.batch_size)


def agent_metadata(agent: Agent, rank: int) -> AgentMetadata:
    train = agent.data.train
    return AgentMetadata(
        rank=rank,
        encoder=describe_module(agent.encoder),
        dimension=agent.dimension,
        head=None if agent.head is None else type(agent.head).__name__,
        optimizer=type(agent.optimizer).__name__,
        learning_rate=_learning_rate(agent),
        scheduler=None if agent.scheduler is None else type(agent.scheduler).__name__,
        hyperparameters=agent.hyperparameters,
        device=str(agent.device),
        batch_size=agent.batch_size,
        training_samples=len(train),
        training_digest=train.digest() if isinstance(train, TensorSamples) else None,
        has_validation=agent.data.validation is not None,
        learns=agent.learns,
        objective=describe_objective(agent),
        metric=agent.metric.name,
        greater_is_better=agent.metric.greater_is_better,
    )


def describe_module(module: nn.Module) -> str:
    """Return a module in a line: its class, its layers if they are few, how many parameters.

    >>> describe_module(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    'Sequential(Linear, ReLU), 36 parameters'
    """
    leaves = [type(part).__name__ for part in module.modules() if not list(part.children())]
    layers = f"({', '.join(leaves)})" if 1 < len(leaves) <= FEW_LAYERS else ""
    count = sum(parameter.numel() for parameter in module.parameters())
    return f"{type(module).__name__}{layers}, {count:,} parameters"


def describe_objective(agent: Agent) -> str:
    """Return the objective of an agent as text, and which parts of it are not trained."""
    if not agent.learns:
        return "nothing, it is frozen"
    nested = (
        agent.objective.objective if isinstance(agent.objective, OnlineProbe) else agent.objective
    )
    words = [getattr(nested, "__name__", type(nested).__name__)]
    words += ["its head by labels"] if nested is not agent.objective else []
    words += ["no head"] if agent.head is None else []
    words += ["encoder frozen"] if agent.frozen else []
    return ", ".join(words)


def gather_metadata(agents: Mapping[str, Agent], group: ProcessGroup) -> dict[str, AgentMetadata]:
    """Return the metadata of all agents of the group, sorted by name."""
    here = {name: asdict(agent_metadata(agent, group.rank)) for name, agent in agents.items()}
    listed = [item for part in group.gather(here) for item in part.items()]
    names = sorted(name for name, _ in listed)
    if len(set(names)) != len(names):
        raise InputError(f"every agent must be on one rank, got {names}")
    if not names:
        raise InputError("there are no agents to train; give at least one")
    found = {
        name: AgentMetadata(**values) for name, values in sorted(listed, key=lambda item: item[0])
    }
    metric_signs(found)
    return found


def _learning_rate(agent: Agent) -> float | None:
    rate = agent.optimizer.param_groups[0].get("lr")
    return float(rate) if agent.learns and rate is not None else None
