"""The agents of an experiment: architectures, modalities, data and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from sheafed import models
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import OnlineProbe, PseudoLabels, hide_labels
from sheafed.agents.samples import ByteSamples, LocalData, TensorSamples
from sheafed.config.agent_presets import family
from sheafed.config.experiment import Experiment, Training
from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.datasets.modalities import MODALITIES
from sheafed.errors import ConfigError
from sheafed.models import AgentSpec
from sheafed.seeds import derive, generator


def agent_specs(experiment: Experiment, classes: int) -> dict[str, AgentSpec]:
    """Return the architectures and target classes of the agents, by name."""
    table = experiment.model
    if not table.agents:
        specs = family(table.family, table.bottleneck)
        return {name: specs[name] for name in table.agent_names()}
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
    """Return each agent's modality; raise if its data, encoder or objective do not suit it."""
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
        objective = experiment.model.objective_of(name)
        moving = [key for key, a in objective.augmentations.items() if a.needs_images]
        if moving and (modality != "pixels" or len(samples.shape) != 3):
            still = ", ".join(
                f"{key} = {{ shift = 0, rotation = 0, erasing = 0 }}" for key in moving
            )
            raise ConfigError(
                f"agent {name!r} cannot have the objective {objective.name!r} with its defaults: "
                f"it shifts, rotates and erases parts of images, and the modality {modality!r} of "
                f"{samples.name} is none; give it {still}, which leaves the noise"
            )
    return modalities


def input_shape(samples: LabelledDataset, modality: str) -> tuple[int, ...]:
    """Return the shape of one input in a modality."""
    return tuple(
        MODALITIES[modality](samples.float_inputs(torch.zeros(1, dtype=torch.long))).shape[1:]
    )


def build_agent(
    experiment: Experiment,
    name: str,
    spec: AgentSpec,
    samples: LabelledDataset,
    split: Sequence[Tensor],
    modality: str,
) -> Agent:
    """Build an agent with the weights that the experiment's seed decides.

    Args:
        experiment: its tables.
        name: the agent's.
        spec: its architecture.
        samples: the whole data set.
        split: the indices of the agent's training, validation and test samples.
        modality: in which it sees them.
    """
    table, options = experiment.training, experiment.model.objective_of(name)
    has_labels, shape = experiment.model.has_labels(name), input_shape(samples, modality)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(experiment.seed, name, "weights"))
        encoder = models.build_encoder(spec, shape)
        head = models.build_head(spec, len(samples.classes)) if has_labels else None
        objective = options.build(spec.latent, shape)
    if has_labels and not options.needs_labels:
        objective = OnlineProbe(objective)
    labels = [samples.labels[part] for part in split]
    known: list[Tensor | None] = [labels[0] if has_labels else None, *labels[1:]]
    if isinstance(options, PseudoLabels):
        random = generator(experiment.seed, name, "labelled")
        known[0] = hide_labels(labels[0], options.labelled, random)
    parts = zip(split, known, strict=True)
    return Agent(
        name,
        encoder,
        head,
        data=LocalData(
            *(_local_samples(samples, part, targets, modality) for part, targets in parts)
        ),
        objective=objective,
        optimizer=lambda parameters: _optimizer(table, parameters),
        batch_size=table.batch_size,
        max_grad_norm=table.max_grad_norm,
        classes=samples.classes,
    )


def _local_samples(
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
