"""An experiment as data: five tables, all with defaults, all checked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sheafed.agents.objectives import (
    AutoencodingOptions,
    CrossEntropyOptions,
    PseudoLabels,
    SimCLROptions,
    VICRegOptions,
)
from sheafed.config.agent_presets import family
from sheafed.config.custom_method import CustomMethod
from sheafed.config.table import Table
from sheafed.methods import ComFed, FedMuscle, FedProto, NonCooperative, SheafFMTL, SheafFRL
from sheafed.options import Count, Fraction, Integer, NotNegative, OneOf, Positive, Switch, tag_of

METHODS = (SheafFRL, NonCooperative, FedProto, FedMuscle, SheafFMTL, ComFed, CustomMethod)
"""What `method.name` can choose."""
OBJECTIVES = (
    CrossEntropyOptions,
    PseudoLabels,
    AutoencodingOptions,
    VICRegOptions,
    SimCLROptions,
)
"""What `objective.name` can choose."""

LocalObjective = Annotated[
    CrossEntropyOptions | PseudoLabels | AutoencodingOptions | VICRegOptions | SimCLROptions,
    OneOf(*OBJECTIVES),
]


class Data(Table):
    """The data set, and how it is divided among the agents."""

    name: str = "digits"
    """A name that `sheafed data list` shows, or a folder of images, one subfolder per class."""
    partition: Literal["label-shift", "iid", "dirichlet", "pathological", "shards"] = "label-shift"
    shift: Fraction = 0.7
    """Label shift: s of eq. local-distribution-shift."""
    concentration: Positive = 0.5
    """Dirichlet: small is skewed."""
    classes_per_agent: Count = 2
    """Pathological: how many classes an agent sees."""
    shards_per_agent: Count = 2
    """Shards: how many an agent is dealt."""
    pilot_fraction: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """The fraction of all samples that is held out, unlabelled, as pilots."""
    pilot_classes: Literal["common", "all"] = "common"
    """Whether pilots keep to classes that every agent observes, as in the paper."""
    train_fraction: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    """The fraction of each agent's training samples that is used."""
    split: tuple[Positive, Positive, Positive] = (0.8, 0.1, 0.1)
    """Training, validation and test, keeping each agent's mixture of labels."""

    @model_validator(mode="after")
    def _split_sums_to_one(self) -> Data:
        if abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(f"split must sum to 1, got {list(self.split)}")
        return self


class AgentTable(Table):
    """One agent: `[[model.agents]]`."""

    name: str = Field(min_length=1)
    encoder: Literal["cnn", "mlp"] = "cnn"
    widths: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Of the encoder's blocks; the last is the latent size."""
    head: tuple[Count, ...] = ()
    """Hidden widths of the classifier."""
    dropout: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    target_classes: tuple[Integer, ...] | None = None
    """Target classes; all by default."""
    objective: LocalObjective | None = None
    """What it learns by; that of `[model]` by default."""
    labels: Switch = True
    """Without labels an agent has no head and can only send; its objective must need none."""
    modality: Literal["pixels", "fourier", "profiles", "gradients"] = "pixels"
    """What the agent sees of an image, see `sheafed.datasets.modalities`."""


class Model(Table):
    """Who the agents are: a named family, or your own list."""

    family: Literal["five", "pair", "fifteen"] = "five"
    """`five` small agents for digits; the paper's `pair` (tab:bottleneck_models) and its
    `fifteen` (tab:agent_zoo). Ignored when `agents` are given."""
    bottleneck: Literal[16, 32, 64, 128, 256, 512] = 64
    """The latent size of the pair."""
    members: tuple[str, ...] = ()
    """Which agents of the family take part; all by default."""
    agents: tuple[AgentTable, ...] = ()
    objective: LocalObjective = CrossEntropyOptions()
    """What agents learn by. One that needs no labels trains encoders alone; heads learn the labels
    beside it."""
    objectives: dict[str, LocalObjective] = Field(default_factory=dict)
    """Those of some agents of the family, by name."""
    unlabelled: tuple[str, ...] = ()
    """The agents of the family that have no labels, as `labels = false` does for your own."""

    @field_validator("members")
    @classmethod
    def _are_of_the_family(cls, members: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not {"family", "bottleneck"} <= set(info.data):
            return members  # what is wrong is told already
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
        strangers = sorted({*self.objectives, *self.unlabelled} - set(names))
        if strangers:
            raise ValueError(f"there are no agents {strangers} to give an objective, only {names}")
        if self.agents and (self.objectives or self.unlabelled):
            raise ValueError(
                "objectives and unlabelled are for families; give your own agents an objective and "
                "labels = false where they are listed"
            )
        for name in names:
            objective = self.objective_of(name)
            if objective.needs_labels and not self.has_labels(name):
                label_free = ", ".join(tag_of(o) for o in OBJECTIVES if not o.needs_labels)
                raise ValueError(
                    f"agent {name!r} has no labels, which its objective {objective.name!r} needs; "
                    f"give it one of {label_free}, or labels"
                )
        return self

    def agent_names(self) -> list[str]:
        if self.agents:
            return [agent.name for agent in self.agents]
        return list(self.members or family(self.family, self.bottleneck))

    def objective_of(self, name: str) -> LocalObjective:
        """Return what an agent learns by."""
        own = {agent.name: agent.objective for agent in self.agents} | self.objectives
        return own.get(name) or self.objective

    def has_labels(self, name: str) -> bool:
        """Whether an agent has labels, and so a head."""
        without = {agent.name for agent in self.agents if not agent.labels}
        return name not in without | set(self.unlabelled)


class Graph(Table):
    """The edges between the agents."""

    kind: Literal["class-overlap", "complete", "ring", "line", "star", "erdos-renyi", "edges"] = (
        "class-overlap"
    )
    density: Fraction = 0.4
    """Class overlap: the fraction of all pairs that are joined."""
    probability: Fraction = 0.4
    """Erdos-Renyi: of each pair; made connected."""
    edges: tuple[tuple[str, str], ...] = ()


class Training(Table):
    """How long and how; the defaults are those of app:exp_details."""

    epochs: Count = 20
    batch_size: Count = 64
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.9
    weight_decay: NotNegative = 5e-4
    max_grad_norm: Positive | None = None
    evaluate_every: Count = 1
    checkpoint_every: Count | None = None
    """Rounds; an epoch by default."""
    oracle: Switch = True
    threads: Count = 1
    """Of torch; bit-identical repetition needs the same number."""


class Experiment(Table):
    """Everything that decides a run, but for where it is written."""

    data: Data = Data()
    model: Model = Model()
    graph: Graph = Graph()
    method: Annotated[
        SheafFRL | NonCooperative | FedProto | FedMuscle | SheafFMTL | ComFed | CustomMethod,
        OneOf(*METHODS, default=SheafFRL),
    ] = Field(default_factory=SheafFRL)
    training: Training = Training()
    seed: Integer = 0
