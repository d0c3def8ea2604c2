"""The federation that an experiment describes: agents, graph, pilots and method."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import networkx as nx
import torch
from torch import Tensor

from sheafed import graphs
from sheafed.agents.agent import Agent
from sheafed.config.agents import agent_forms, agent_specs, build_agent, check_agents
from sheafed.config.custom_method import AllowCode, CustomMethod
from sheafed.config.dataset import ViewedDataset, load_dataset
from sheafed.config.experiment import Experiment
from sheafed.datasets import partitions
from sheafed.datasets.labelled_dataset import as_float
from sheafed.errors import ConfigError, EmptyInputError, UnknownAgentError
from sheafed.methods import Method, Node
from sheafed.methods.build_node import build_node
from sheafed.models import AgentSpec
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import generator
from sheafed.training.epochs import batches, count_rounds, steps_per_pass


@dataclass(frozen=True)
class Federation:
    """What `sheafed.train` needs, and the partition of the data set."""

    agents: list[Agent]
    """Those of this process."""
    graph: nx.Graph[str]
    pilots: PilotSet
    method: Method
    partition: Mapping[str, Tensor]
    """The indices of each agent's samples in the data set, before its split."""
    labels: Tensor
    steps_per_pass: Mapping[str, float]
    """Of all agents, in this process or in others; see `sheafed.training.epochs`."""
    rounds_per_epoch: int
    homogeneous: bool
    """Whether all latent sizes of the network agree."""
    seed: int

    def build_node(self, name: str, secret: int | None = None) -> Node:
        """Return the node of one agent, as it is when all run in one process.

        Args:
            name: an agent of this process.
            secret: a seed that only this agent knows, see `sheafed.methods.build_node`.
        """
        (agent,) = (agent for agent in self.agents if agent.name == name)
        return build_node(
            self.method,
            agent,
            self.graph.neighbors(name),
            self.pilots,
            seed=self.seed,
            rounds_per_epoch=self.rounds_per_epoch,
            homogeneous=self.homogeneous,
            secret=secret,
        )


def build_federation(
    experiment: Experiment,
    only: Collection[str] | None = None,
    *,
    allow_code: AllowCode = (),
) -> Federation:
    """Build what an experiment describes; its seed decides data, weights and their order.

    Args:
        experiment: its tables.
        only: the agents of this process, if they are not all.
        allow_code: modules, or files `NAME.py`, that a method of your own may be imported from; see
            `CustomMethod`.
    """
    method = experiment.method
    if isinstance(method, CustomMethod):  # refused before any data are loaded
        method = method.load(allow_code)
    names = experiment.model.agent_names()
    if unknown := sorted(set(only or ()) - set(names)):
        raise UnknownAgentError(
            f"unknown agent {', '.join(unknown)}; agents of this config: {', '.join(names)}"
        )
    samples = load_dataset(experiment.data)
    if len(names) > len(samples.labels):
        raise ConfigError(
            f"{len(names)} agents cannot divide {len(samples.labels)} samples of {samples.name}; "
            "give fewer agents, or more data"
        )
    specs = agent_specs(experiment, classes=len(samples.classes))
    forms = agent_forms(experiment, samples, specs)
    check_agents(experiment, samples, specs, forms)
    try:
        pilots, partition = partition_samples(experiment, samples.labels, specs)
    except EmptyInputError as problem:
        raise ConfigError(f"[data] of {samples.name}: {problem}") from problem
    splits = {
        name: _split(experiment, name, samples.labels, indices)
        for name, indices in partition.items()
    }
    splits = _with_control(experiment.data.control, splits, pilots)
    training = experiment.training
    sizes = {name: len(train) for name, (train, *_) in splits.items()}
    counts = [batches(size, training.batch_size) for size in sizes.values()]
    return Federation(
        agents=[
            build_agent(experiment, name, spec, samples, splits[name], forms)
            for name, spec in specs.items()
            if only is None or name in only
        ],
        graph=_graph(experiment, specs),
        pilots=_pilot_set(samples, pilots, forms, only or forms),
        method=method,
        partition=partition,
        labels=samples.labels,
        steps_per_pass={
            name: steps_per_pass(size, training.batch_size) for name, size in sizes.items()
        },
        rounds_per_epoch=count_rounds(counts, training.rounds_per_epoch),
        homogeneous=len({spec.latent for spec in specs.values()}) == 1,
        seed=experiment.seed,
    )


def partition_samples(
    experiment: Experiment, labels: Tensor, specs: Mapping[str, AgentSpec]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the pilots, held out first, and the samples of each agent, as indices."""
    table, names = experiment.data, list(specs)
    random = generator(experiment.seed, "partition")
    pilots, rest = partitions.hold_out(len(labels), table.pilot_fraction, random)
    left = labels[rest]
    if table.partition == "label-shift":
        targets = {name: spec.target_classes for name, spec in specs.items()}
        local = partitions.label_shift(left, targets, table.shift, random)
    elif table.partition == "iid":
        local = partitions.iid(left, names, random)
    elif table.partition == "dirichlet":
        local = partitions.dirichlet(left, names, table.concentration, random)
    elif table.partition == "pathological":
        local = partitions.pathological(left, names, table.classes_per_agent, random)
    else:
        local = partitions.shards(left, names, table.shards_per_agent, random)
    partition = {name: rest[indices] for name, indices in local.items()}
    if table.pilot_classes == "all":
        return pilots, partition
    common = partitions.common_classes(labels, partition)
    if not common:
        raise ConfigError(
            "no class is observed by every agent, so no pilot is left; give "
            "data.pilot_classes=all, or lower data.shift, or choose another data.partition"
        )
    return pilots[torch.isin(labels[pilots], torch.tensor(common))], partition


def _split(experiment: Experiment, name: str, labels: Tensor, indices: Tensor) -> list[Tensor]:
    """Return an agent's training, validation and test samples, as indices in the data set."""
    random = generator(experiment.seed, name, "split")
    split = experiment.data.split
    try:
        parts = partitions.stratified_split(labels[indices], split, random)
    except EmptyInputError as problem:
        raise ConfigError(
            f"agent {name!r} has {len(indices)} samples, too few for data.split = {list(split)}, "
            "which needs some for training, validation and test; give more data, fewer agents, or "
            "another data.split or data.partition"
        ) from problem
    used = max(1, round(experiment.data.train_fraction * len(parts[0])))
    return [indices[rows] for rows in (parts[0][:used], *parts[1:])]


def _with_control(
    control: Literal["none", "labelled-pilots", "pooled"],
    splits: Mapping[str, list[Tensor]],
    pilots: Tensor,
) -> dict[str, list[Tensor]]:
    """Return the splits with the training samples that a control adds to every agent's own."""
    added: dict[str, list[Tensor]] = {name: [] for name in splits}
    for name in splits:
        if control == "labelled-pilots":
            added[name] = [pilots]
        elif control == "pooled":
            added[name] = [train for other, (train, *_) in splits.items() if other != name]
    return {
        name: [torch.cat([train, *added[name]]), *held_out]
        for name, (train, *held_out) in splits.items()
    }


def _pilot_set(
    samples: ViewedDataset, pilots: Tensor, forms: Mapping[str, str], local: Collection[str]
) -> PilotSet:
    """Return the pilots, the same for all, or as each local agent sees them, paired by sample."""
    seen = {
        form: as_float(samples.view(form, pilots))
        for form in dict.fromkeys(forms[name] for name in local)
    }
    if len(set(forms.values())) == 1:
        (shared,) = seen.values()
        return PilotSet(shared)
    ids = [f"{samples.name} {index}" for index in pilots.tolist()]
    return PilotSet({name: seen[form] for name, form in forms.items() if name in local}, ids)


def _graph(experiment: Experiment, specs: Mapping[str, AgentSpec]) -> nx.Graph[str]:
    table, names = experiment.graph, sorted(specs)
    if table.kind == "class-overlap":
        targets = {name: spec.target_classes for name, spec in specs.items()}
        return graphs.class_overlap(targets, table.density)
    if table.kind == "erdos-renyi":
        return graphs.erdos_renyi(names, table.probability, experiment.seed)
    if table.kind == "edges":
        return graphs.from_edges(table.edges, names)
    shapes = {
        "complete": graphs.complete,
        "ring": graphs.ring,
        "line": graphs.line,
        "star": graphs.star,
    }
    return shapes[table.kind](names)
