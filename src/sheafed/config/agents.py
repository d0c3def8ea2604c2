"""The agents of an experiment: architectures, forms of the samples, data and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from sheafed import models
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import OnlineProbe, PseudoLabels, hide_labels
from sheafed.agents.samples import ByteSamples, LocalData, Samples, TensorSamples
from sheafed.config.agent_presets import family
from sheafed.config.dataset import ViewedDataset
from sheafed.config.experiment import AgentTable, Experiment, Training
from sheafed.datasets.modalities import MODALITIES
from sheafed.errors import ConfigError, InputError
from sheafed.models import AgentSpec
from sheafed.seeds import derive, generator

SPLITS = ("train", "validation", "test")


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


def agent_forms(
    experiment: Experiment, samples: ViewedDataset, specs: Mapping[str, AgentSpec]
) -> dict[str, str]:
    """Return the form in which each agent sees samples, e.g. its modality; raise if it cannot."""
    own = {agent.name: agent for agent in experiment.model.agents}
    return {name: _form(samples, name, own.get(name)) for name in specs}


def check_agents(
    experiment: Experiment,
    samples: ViewedDataset,
    specs: Mapping[str, AgentSpec],
    forms: Mapping[str, str],
) -> None:
    """Raise if an agent's encoder or objective does not suit its form of the samples."""
    for name, form in forms.items():
        key = "modality" if form in MODALITIES else "pretrained"
        try:
            shape = samples.shape_of(form)
        except InputError as problem:
            raise ConfigError(f"agent {name!r} cannot have the {key} {form!r}: {problem}") from None
        if specs[name].kind == "cnn" and len(shape) != 3:
            raise ConfigError(
                f"agent {name!r} cannot have the encoder 'cnn': its {key} {form!r} has the "
                f"shape {shape}, which is no image; take 'mlp' or 'linear'"
            )
        objective = experiment.model.objective_of(name)
        moving = [k for k, a in objective.augmentations.items() if a.needs_images]
        if moving and not samples.shows_images(form):
            still = ", ".join(f"{k} = {{ shift = 0, rotation = 0, erasing = 0 }}" for k in moving)
            raise ConfigError(
                f"agent {name!r} cannot have the objective {objective.name!r} with its defaults: "
                f"it shifts, rotates and erases parts of images, and the {key} {form!r} of "
                f"{samples.name} is none; give it {still}, which leaves the noise"
            )


def _form(samples: ViewedDataset, name: str, table: AgentTable | None) -> str:
    """Return an agent's form: its pretrained encoder, or else its modality."""
    modality = "pixels" if table is None else table.modality  # families see pixels
    pretrained = None if table is None else table.pretrained
    if samples.kind == "texts" and pretrained is None:
        raise ConfigError(
            f"agent {name!r} needs pretrained: the samples of {samples.name} are texts; give every "
            "agent of [[model.agents]] one that `sheafed encoders list` shows"
        )
    if pretrained is None:
        return modality
    if modality != "pixels":
        raise ConfigError(
            f"agent {name!r} cannot have the modality {modality!r} and the pretrained encoder "
            f"{pretrained!r}, which gets {samples.kind} as they are; leave one out"
        )
    return pretrained


def build_agent(
    experiment: Experiment,
    name: str,
    spec: AgentSpec,
    samples: ViewedDataset,
    split: Sequence[Tensor],
    forms: Mapping[str, str],
) -> Agent:
    """Build an agent with the weights that the experiment's seed decides.

    Args:
        experiment: its tables.
        name: the agent's.
        spec: its architecture.
        samples: the whole data set.
        split: the indices of the agent's training, validation and test samples.
        forms: in which all agents see them.
    """
    table, options = experiment.training, experiment.model.objective_of(name)
    has_labels, shape = experiment.model.has_labels(name), samples.shape_of(forms[name])
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
    parts = dict(zip(SPLITS, zip(split, known, strict=True), strict=True))

    def seen_by(part: str, other: str) -> Samples:
        return local_samples(samples, *parts[part], forms[other])

    return Agent(
        name,
        encoder,
        head,
        data=LocalData(**{part: seen_by(part, name) for part in SPLITS}, seen_by=seen_by),
        objective=objective,
        optimizer=lambda parameters: _optimizer(table, parameters),
        batch_size=table.batch_size,
        max_grad_norm=table.max_grad_norm,
        classes=samples.classes,
        metric=table.metric,
        device=table.device,
        precision=table.precision,
    )


def local_samples(
    samples: ViewedDataset, part: Tensor, labels: Tensor | None, form: str
) -> TensorSamples:
    inputs = samples.view(form, part)
    if inputs.dtype == torch.uint8:
        return ByteSamples(inputs, labels)
    return TensorSamples(inputs.float(), labels)


def _optimizer(table: Training, parameters: Iterable[nn.Parameter]) -> Optimizer:
    rate, decay = table.learning_rate, table.weight_decay
    if table.optimizer == "sgd":
        return SGD(parameters, lr=rate, momentum=table.momentum, weight_decay=decay)
    make = AdamW if table.optimizer == "adamw" else Adam
    return make(parameters, lr=rate, weight_decay=decay)
