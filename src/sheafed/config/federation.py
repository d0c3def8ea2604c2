"""From an experiment's tables to agents, a graph, pilots and a method."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from sheafed import datasets, graphs, models
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import OnlineProbe, hide_labels
from sheafed.agents.samples import ByteSamples, LocalData, TensorSamples
from sheafed.config.agent_presets import family
from sheafed.config.custom_method import CustomMethod
from sheafed.config.experiment import Experiment, Training
from sheafed.config.objectives import PseudoLabelsTable
from sheafed.datasets import partitions
from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.datasets.modalities import MODALITIES
from sheafed.errors import ConfigError
from sheafed.methods import Method
from sheafed.models import AgentSpec
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import derive, generator


@dataclass(frozen=True)
class Federation:
    """What `sheafed.train` needs, and who holds what."""

    agents: list[Agent]
    """Those that live in this process."""
    graph: nx.Graph[str]
    pilots: PilotSet
    method: Method
    partition: Mapping[str, Tensor]
    """The indices of each agent's samples in the data set, before its split."""
    labels: Tensor
    rounds_per_epoch: int
    """As long as the agent with the fewest batches, here or elsewhere, has a new one."""
    homogeneous: bool
    """Whether all latent sizes of the network agree."""


def build(experiment: Experiment, only: Collection[str] | None = None) -> Federation:
    """Build everything an experiment names; the seed decides the data, weights and order.

    Args:
        experiment: its tables.
        only: the agents that live in this process, if not all do.
    """
    samples = load(experiment.data.name)
    specs = agent_specs(experiment, classes=len(samples.classes))
    modalities = agent_modalities(experiment, samples, specs)
    pilots, partition = divide(experiment, samples.labels, specs)
    splits = {
        name: _split(experiment, name, samples.labels, indices)
        for name, indices in partition.items()
    }
    agents = [
        _agent(experiment, name, spec, samples, splits[name], modalities[name])
        for name, spec in specs.items()
        if only is None or name in only
    ]
    batches = min(len(train) // experiment.training.batch_size for train, *_ in splits.values())
    return Federation(
        agents=agents,
        graph=_graph(experiment, specs),
        pilots=_pilot_set(samples, pilots, modalities),
        method=experiment.method.load()
        if isinstance(experiment.method, CustomMethod)
        else experiment.method,
        partition=partition,
        labels=samples.labels,
        rounds_per_epoch=max(1, batches),
        homogeneous=len({spec.latent for spec in specs.values()}) == 1,
    )


def load(name: str) -> LabelledDataset:
    """Return a data set by name, or a folder of images."""
    if Path(name).is_dir():
        return datasets.from_folder(Path(name))
    return datasets.load(name)


def divide(
    experiment: Experiment, labels: Tensor, specs: Mapping[str, AgentSpec]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Hold out the pilots first, then divide the rest among the agents."""
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


def agent_names(experiment: Experiment) -> list[str]:
    """Return who takes part."""
    return experiment.model.names()


def agent_specs(experiment: Experiment, classes: int) -> dict[str, AgentSpec]:
    """Return the architectures and target classes of the agents, by name."""
    table = experiment.model
    if not table.agents:
        everybody = family(table.family, table.bottleneck)
        return {name: everybody[name] for name in table.members or everybody}
    return {
        agent.name: AgentSpec(
            encoder=agent.widths,
            head=agent.head,
            dropout=agent.dropout,
            target_classes=tuple(range(classes))
            if agent.target_classes is None
            else agent.target_classes,
            kind=agent.encoder,
        )
        for agent in table.agents
    }


def agent_modalities(
    experiment: Experiment, samples: LabelledDataset, specs: Mapping[str, AgentSpec]
) -> dict[str, str]:
    """Return what each agent sees; refuse what its encoder, objective or data cannot have."""
    modalities = dict.fromkeys(specs, "pixels") | {
        a.name: a.modality for a in experiment.model.agents
    }
    for name, modality in modalities.items():
        if modality != "pixels" and len(samples.shape) != 3:
            raise ConfigError(
                f"agent {name!r} cannot have the modality {modality!r}: the samples of "
                f"{samples.name} are no images, they have the shape {samples.shape}"
            )
        shape = input_shape(samples, modality)
        if specs[name].kind == "cnn" and len(shape) != 3:
            raise ConfigError(
                f"agent {name!r} cannot have the encoder 'cnn': its modality {modality!r} has the "
                f"shape {shape}, which is no image; take 'mlp'"
            )
        goal = experiment.model.objective_of(name)
        if goal.needs_images and (modality != "pixels" or len(samples.shape) != 3):
            raise ConfigError(
                f"agent {name!r} cannot learn by {goal.name!r} as it is: that shifts, turns and "
                f"erases parts of images, and the modality {modality!r} of {samples.name} is none; "
                "give it augmentation = { shift = 0, rotation = 0, erasing = 0 }, which "
                "leaves the noise"
            )
    return modalities


def input_shape(samples: LabelledDataset, modality: str) -> tuple[int, ...]:
    """Return the shape of one input in a modality."""
    return tuple(
        MODALITIES[modality](samples.float_inputs(torch.zeros(1, dtype=torch.long))).shape[1:]
    )


def _pilot_set(samples: LabelledDataset, pilots: Tensor, modalities: Mapping[str, str]) -> PilotSet:
    """Return the pilots, the same for all, or as each agent sees them, paired by sample."""
    inputs = samples.float_inputs(pilots)
    if set(modalities.values()) == {"pixels"}:
        return PilotSet(inputs)
    seen = {modality: MODALITIES[modality](inputs) for modality in modalities.values()}
    ids = [f"{samples.name} {index}" for index in pilots.tolist()]
    return PilotSet({name: seen[modality] for name, modality in modalities.items()}, ids)


def _split(experiment: Experiment, name: str, labels: Tensor, indices: Tensor) -> list[Tensor]:
    """Return an agent's training, validation and test samples, as indices in the data set."""
    random = generator(experiment.seed, name, "split")
    parts = partitions.stratified_split(labels[indices], experiment.data.split, random)
    used = max(1, round(experiment.data.train_fraction * len(parts[0])))
    return [indices[rows] for rows in (parts[0][:used], *parts[1:])]


def _agent(
    experiment: Experiment,
    name: str,
    spec: AgentSpec,
    samples: LabelledDataset,
    split: Sequence[Tensor],
    modality: str,
) -> Agent:
    table, goal = experiment.training, experiment.model.objective_of(name)
    has_labels, shape = experiment.model.has_labels(name), input_shape(samples, modality)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(experiment.seed, name, "weights"))
        encoder = models.build_encoder(spec, shape)
        head = models.build_head(spec, len(samples.classes)) if has_labels else None
        objective = goal.build(spec.latent, shape)
    if has_labels and not goal.needs_labels:
        objective = OnlineProbe(objective)
    labels = [samples.labels[part] for part in split]
    known: list[Tensor | None] = [labels[0] if has_labels else None, *labels[1:]]
    if isinstance(goal, PseudoLabelsTable):
        random = generator(experiment.seed, name, "labelled")
        known[0] = hide_labels(labels[0], goal.labelled, random)
    parts = zip(split, known, strict=True)
    return Agent(
        name,
        encoder,
        head,
        data=LocalData(*(_as_kept(samples, part, targets, modality) for part, targets in parts)),
        objective=objective,
        optimizer=lambda parameters: _optimizer(table, parameters),
        batch_size=table.batch_size,
        max_grad_norm=table.max_grad_norm,
        classes=samples.classes,
    )


def _as_kept(
    samples: LabelledDataset, part: Tensor, labels: Tensor | None, modality: str
) -> TensorSamples:
    inputs = samples.inputs[part]
    if modality == "pixels" and inputs.dtype == torch.uint8:
        return ByteSamples(inputs, labels)
    return TensorSamples(MODALITIES[modality](samples.float_inputs(part)), labels)


def _optimizer(table: Training, parameters: Iterable[nn.Parameter]) -> Optimizer:
    if table.optimizer == "adam":
        return Adam(parameters, lr=table.learning_rate, weight_decay=table.weight_decay)
    return SGD(
        parameters,
        lr=table.learning_rate,
        momentum=table.momentum,
        weight_decay=table.weight_decay,
    )


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
