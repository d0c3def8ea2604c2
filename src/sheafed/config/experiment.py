"""An experiment as data: five tables, all with defaults, all checked."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sheafed.agents.objectives import (
    AutoencodingOptions,
    CrossEntropyOptions,
    ObjectiveOptions,
    PseudoLabels,
    SimCLROptions,
    VICRegOptions,
)
from sheafed.agents.precision import Precision
from sheafed.config.agent_presets import family
from sheafed.config.custom_method import CustomMethod
from sheafed.methods import Method, SheafFRL, method_table
from sheafed.names import check_name
from sheafed.options import (
    Count,
    Fraction,
    Integer,
    NotNegative,
    OneOf,
    Positive,
    Switch,
    Width,
    reject_unknown_keys,
    tag_of,
)
from sheafed.training.epochs import EpochRule

METHODS = (*method_table.METHODS, CustomMethod)
"""What `method.name` can choose."""
OBJECTIVES = (
    CrossEntropyOptions,
    PseudoLabels,
    AutoencodingOptions,
    VICRegOptions,
    SimCLROptions,
)
"""What `objective.name` can choose."""

MOST_AGENTS, MOST_LAYERS = 10_000, 100
"""Of one config; more of them are taken for a mistake, as wider layers and more threads are."""
LocalObjective = Annotated[ObjectiveOptions, OneOf(*OBJECTIVES)]


class Table(BaseModel):
    """A table of a config: unknown keys are errors, and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, given: Any) -> Any:
        return reject_unknown_keys(given, list(cls.model_fields))


class Data(Table):
    """The data set, and how it is divided into pilots and the agents' samples."""

    name: str = "digits"
    """A name that `sheafed data list` shows, of images or texts, or a folder of images, one
    subfolder per class."""
    partition: Literal["label-shift", "iid", "dirichlet", "pathological", "shards"] = "label-shift"
    """How samples are divided among the agents, see `sheafed.datasets.partitions`."""
    shift: Fraction = 0.7
    """Label shift: s of eq. local-distribution-shift, from 0, all agents alike, to 1, only
    target classes."""
    concentration: Annotated[float, Field(gt=0, le=1e6, strict=True)] = 0.5
    """Dirichlet: the smaller, the more skewed."""
    classes_per_agent: Count = 2
    """Pathological: the number of classes of each agent."""
    shards_per_agent: Count = 2
    """Shards: the number of shards of each agent."""
    samples: Count | None = None
    """How many samples are used, stratified by class; the same ones for every seed, and among
    those of any larger number. By default all."""
    pilot_fraction: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """The fraction of all samples that is held out, unlabelled, as pilots."""
    pilot_classes: Literal["common", "all"] = "common"
    """Of which classes pilots are: those that every agent observes, as in the paper, or all."""
    train_fraction: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    """The fraction of each agent's training samples that is used."""
    split: tuple[Positive, Positive, Positive] = (0.8, 0.1, 0.1)
    """The fractions of training, validation and test samples, stratified by label."""
    control: Literal["none", "labelled-pilots", "pooled"] = "none"
    """Upper controls for comparisons, with data that no agent of a federation has: every agent
    also trains on the pilots with their labels, or on the training samples of all agents."""

    @model_validator(mode="after")
    def _split_sums_to_one(self) -> Data:
        if abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(f"split must sum to 1, got {list(self.split)}")
        return self


class AgentTable(Table):
    """One agent."""

    name: Annotated[str, AfterValidator(check_name)]
    """Unique in the network."""
    encoder: Literal["cnn", "mlp", "linear"] = "cnn"
    """Blocks of convolutions, or of linear layers, or a single linear layer with tanh."""
    widths: Annotated[tuple[Width, ...], Field(min_length=1, max_length=MOST_LAYERS)]
    """Of the encoder's blocks; the last is the latent size."""
    head: Annotated[tuple[Width, ...], Field(max_length=MOST_LAYERS)] = ()
    """Widths of the classifier's hidden layers."""
    dropout: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    """The probability of dropout in the head."""
    target_classes: tuple[Integer, ...] | None = None
    """The classes that the agent mostly observes under label shift; by default all."""
    objective: LocalObjective | None = None
    """By default that of `[model]`."""
    labels: Switch = True
    """Without labels an agent has no head and can only send; its objective must need none."""
    modality: Literal["pixels", "fourier", "profiles", "gradients"] = "pixels"
    """The form in which the agent gets an image, see `sheafed.datasets.modalities`."""
    pretrained: str | None = None
    """The frozen pretrained encoder, of texts or images, whose latents of a sample are the agent's
    input; agents of texts need one. Encoded once, then kept in the cache."""


class Model(Table):
    """The agents: a family by its name, or a list of your own."""

    family: Literal["five", "pair", "fifteen"] = "five"
    """`five` small agents for digits; the paper's `pair` (tab:bottleneck_models) and its
    `fifteen` (tab:agent_zoo). Not used if `agents` are given."""
    bottleneck: Literal[16, 32, 64, 128, 256, 512] = 64
    """The latent size of the pair."""
    members: tuple[str, ...] = ()
    """The agents of the family that take part; by default all."""
    agents: Annotated[tuple[AgentTable, ...], Field(max_length=MOST_AGENTS)] = ()
    """Your own agents, `[[model.agents]]`."""
    objective: LocalObjective = CrossEntropyOptions()
    """The objective of all agents, by its name or as a table. With one that needs no labels, heads
    are trained with the labels apart from it, and no label reaches an encoder."""
    objectives: dict[str, LocalObjective] = Field(default_factory=dict)
    """The objectives of single agents of the family, by their names."""
    unlabelled: tuple[str, ...] = ()
    """The agents of the family that have no labels, as `labels = false` for your own."""

    @field_validator("members")
    @classmethod
    def _are_of_the_family(cls, members: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not {"family", "bottleneck"} <= set(info.data):
            return members  # there is another error already
        names = list(family(info.data["family"], info.data["bottleneck"]))
        if len(set(members)) != len(members) or not set(members) <= set(names):
            raise ValueError(
                f"must be different agents of the family ({', '.join(names)}), got {list(members)}"
            )
        return members

    @model_validator(mode="after")
    def _names_differ(self) -> Model:
        names = [agent.name for agent in self.agents]
        if len(set(names)) != len(names):
            raise ValueError(f"agents must have different names, got {names}")
        if names and self.members:
            raise ValueError("give members of a family or agents of your own, not both")
        return self

    @model_validator(mode="after")
    def _objectives_fit(self) -> Model:
        names = self.agent_names()
        if unknown := sorted({*self.objectives, *self.unlabelled} - set(names)):
            raise ValueError(
                f"unknown agent {', '.join(unknown)} in objectives or unlabelled; agents: "
                f"{', '.join(names)}"
            )
        if self.agents and (self.objectives or self.unlabelled):
            raise ValueError(
                "objectives and unlabelled are for families; give your own agents objective and "
                "labels = false in [[model.agents]]"
            )
        for name in names:
            objective = self.objective_of(name)
            if objective.needs_labels and not self.has_labels(name):
                label_free = ", ".join(tag_of(o) for o in OBJECTIVES if not o.needs_labels)
                raise ValueError(
                    f"the objective {objective.name!r} of agent {name!r} needs labels, and the "
                    f"agent has none; choose one of {label_free}, or give it labels"
                )
        return self

    def agent_names(self) -> list[str]:
        if self.agents:
            return [agent.name for agent in self.agents]
        return list(self.members or family(self.family, self.bottleneck))

    def objective_of(self, name: str) -> LocalObjective:
        return self._own_objectives.get(name) or self.objective

    def has_labels(self, name: str) -> bool:
        """Whether an agent has labels, and so a head."""
        return name not in self._without_labels

    @cached_property
    def _own_objectives(self) -> dict[str, LocalObjective | None]:
        return {agent.name: agent.objective for agent in self.agents} | self.objectives

    @cached_property
    def _without_labels(self) -> set[str]:
        return {agent.name for agent in self.agents if not agent.labels} | set(self.unlabelled)


class Graph(Table):
    """Which agents are neighbours."""

    kind: Literal["class-overlap", "complete", "ring", "line", "star", "erdos-renyi", "edges"] = (
        "class-overlap"
    )
    """Class overlap is the paper's graph; `edges` takes the list below."""
    density: Fraction = 0.4
    """Class overlap: the fraction of all pairs that are edges."""
    probability: Fraction = 0.4
    """Erdos-Renyi: of each edge, before components are joined."""
    edges: tuple[tuple[str, str], ...] = ()
    """Pairs of names."""


class Training(Table):
    """How agents are trained and evaluated."""

    epochs: Count = 20
    """The length of the training; the key below says what an epoch is."""
    rounds_per_epoch: Count | EpochRule = "mean"
    """In a round every agent takes a step on one batch. An epoch has as many rounds as the `mean`,
    `smallest`, `median` or `largest` number of batches of the agents, or this number of rounds."""
    batch_size: Count = 64
    """Of each agent."""
    optimizer: Literal["sgd", "adam", "adamw"] = "adamw"
    """Of each agent. The paper's is `sgd` with learning rate 0.01, momentum 0.9 and weight decay
    0.0005."""
    learning_rate: Positive = 0.003
    """Constant."""
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.9
    """Of SGD."""
    weight_decay: NotNegative = 0.01
    """Of any optimiser; AdamW keeps it out of the gradient's moments."""
    max_grad_norm: Positive | None = None
    """The bound to which each agent's gradient is clipped; by default it is not."""
    evaluate_every: Count = 1
    """Epochs from one evaluation to the next."""
    checkpoint_every: Count | None = None
    """Rounds from one checkpoint to the next; by default an epoch."""
    metric: Literal["accuracy", "top_5_accuracy", "macro_f1"] = "accuracy"
    """By which all agents are judged."""
    oracle: Switch = True
    """Also measure oracle accuracy: what the receiver's head says if the receiver encodes the
    sender's inputs itself. It is no upper bound of communication accuracy."""
    vectorize: Switch = True
    """Compute the steps of agents of one architecture at once, from 16 of them on. Results differ
    by rounding from those of one step after another."""
    threads: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    """Of torch. Runs with the same number are bit-identical."""
    device: Annotated[str, Field(min_length=1)] = "cpu"
    """Where all agents compute: `cpu`, `cuda:0`, `mps`; `auto` is CUDA, else MPS, else the CPU."""
    precision: Precision = "full"
    """`bf16` runs encoders and heads under bfloat16 autocast; all else stays in float32."""


class Experiment(Table):
    """Everything that decides the result of a run."""

    data: Data = Data()
    """What is learnt."""
    model: Model = Model()
    """The agents."""
    graph: Graph = Graph()
    """Their neighbours."""
    method: Annotated[Method | CustomMethod, OneOf(*METHODS, default=SheafFRL)] = Field(
        default_factory=SheafFRL
    )
    """The method and its options."""
    training: Training = Training()
    """The schedule."""
    seed: Integer = 0
    """Of data, weights, pilots and the order of batches."""
