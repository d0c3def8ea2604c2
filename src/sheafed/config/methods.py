"""The `[method]` table: one kind per method, each of which can build its method."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sheafed.channels import MOST_BITS, Channel, When
from sheafed.config.table import Count, Fraction, NotNegative, Positive, Table
from sheafed.errors import ConfigError
from sheafed.methods import (
    SWBN,
    ZCA,
    ComFed,
    Distillation,
    DualAscent,
    FedMuscle,
    FedProto,
    GaussianNoise,
    MapPolicy,
    Method,
    NonCooperative,
    NoWhitening,
    SheafFMTL,
    SheafFRL,
    WarmUp,
)
from sheafed.methods.sheaf_frl.latent_codec import Quantisation
from sheafed.methods.sheaf_frl.penalty_weight import PenaltyWeight


class DistillationTable(Table):
    """Distillation: `distillation = {}` for the defaults."""

    confidence: Fraction = 0.8
    weight: Positive = 1.0


class MapsTable(Table):
    """When maps are fitted and from what."""

    every: Count | Literal["epoch"] = 1
    source: Literal["round", "all", "running"] = "running"
    decay: Fraction = 0.9


class ChannelTable(Table):
    """Over which latents are transmitted, see docs/channels.md: `channel = { snr_db = 10 }`."""

    snr_db: Annotated[float, Field(allow_inf_nan=False)] | None = None
    erasure: Fraction = 0.0
    bits: Annotated[int, Field(ge=1, le=MOST_BITS)] | None = None
    when: When = "always"

    def build(self) -> Channel:
        """Return the channel."""
        return Channel(**self.model_dump())


class WhiteningTable(Table):
    """How latents are whitened in training."""

    kind: Literal["zca", "swbn", "none"] = "zca"
    shrinkage: Fraction = 0.5
    momentum: Fraction = 0.05

    def build(self) -> ZCA | SWBN | NoWhitening:
        """Return the choice of whitening."""
        if self.kind == "none":
            return NoWhitening()
        return (ZCA if self.kind == "zca" else SWBN)(self.shrinkage, self.momentum)


class NoiseTable(Table):
    """Gaussian noise on the latents that leave, see docs/privacy.md."""

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    clip: Positive = 1.0
    """The bound on a white latent's norm, over the square root of its dimension."""


class SheafFRLTable(Table):
    """Sheaf-FRL, see docs/sheaf-frl.md.

    By default it exchanges rarely and coarsely, which costs no accuracy (docs/performance.md); the
    paper's algorithms, as `SheafFRL` in Python, do so every round in full.
    """

    name: Literal["sheaf-frl"] = "sheaf-frl"
    penalty: NotNegative = 0.1
    warm_up_rounds: Annotated[int, Field(ge=0)] = 0
    tolerance: NotNegative | None = None
    """If given, the weight of each edge rises by dual ascent, up to `penalty`."""
    privacy: Literal["standard", "strict"] = "standard"
    pilots_per_round: Count = 64
    exchange_every: Count = 8
    """Rounds from one exchange to the next."""
    quantisation: Quantisation = "int8"
    """Of latents on the wire: none, float16 or int8."""
    maps: MapsTable = MapsTable()
    whitening: WhiteningTable = WhiteningTable()
    distillation: DistillationTable | None = None
    channel: ChannelTable | None = None
    edge_dim: Count | None = None
    """The largest size of an edge stalk, see docs/edge-stalks.md."""
    noise: NoiseTable | None = None

    @model_validator(mode="after")
    def _one_development(self) -> SheafFRLTable:
        if self.warm_up_rounds and self.tolerance is not None:
            raise ValueError("give warm_up_rounds or tolerance, not both")
        return self

    def build(self) -> Method:
        """Return the method."""
        penalty: float | PenaltyWeight = self.penalty
        if self.warm_up_rounds:
            penalty = WarmUp(self.penalty, self.warm_up_rounds)
        elif self.tolerance is not None:
            penalty = DualAscent(self.tolerance, largest=self.penalty)
        return SheafFRL(
            penalty=penalty,
            privacy=self.privacy,
            maps=MapPolicy(self.maps.every, self.maps.source, self.maps.decay),
            pilots_per_round=self.pilots_per_round,
            whitening=self.whitening.build(),
            distillation=None
            if self.distillation is None
            else Distillation(**self.distillation.model_dump()),
            exchange_every=self.exchange_every,
            quantisation=self.quantisation,
            channel=None if self.channel is None else self.channel.build(),
            edge_dim=self.edge_dim,
            noise=None if self.noise is None else GaussianNoise(**self.noise.model_dump()),
        )


class PostHocTable(Table):
    """How the maps of baselines are fitted after training."""

    whitening: Literal["pilots", "private"] = "pilots"
    """`pilots` is fair to Sheaf-FRL, `private` as in the paper."""
    shrinkage: Fraction = 0.1
    channel: ChannelTable | None = None

    def options(self, *without: str) -> dict[str, Any]:
        """Return everything but the name as the method takes it."""
        given = self.model_dump(exclude={"name", "channel", *without})
        return given | {"channel": None if self.channel is None else self.channel.build()}


class NonCooperativeTable(PostHocTable):
    """Independent training, aligned afterwards."""

    name: Literal["non-cooperative"] = "non-cooperative"

    def build(self) -> Method:
        """Return the method."""
        return NonCooperative(**self.options())


class FedProtoTable(PostHocTable):
    """FedProto; the paper's variant is `aggregation = "ema"`."""

    name: Literal["fedproto"] = "fedproto"
    penalty: NotNegative = 1.0
    aggregation: Literal["mean", "ema"] = "ema"
    momentum: Fraction = 0.9

    def build(self) -> Method:
        """Return the method."""
        return FedProto(**self.options())


class FedMuscleTable(PostHocTable):
    """FedMuscle on the pilots; the paper's variant is `alignment = "average"`."""

    name: Literal["fedmuscle"] = "fedmuscle"
    penalty: NotNegative = 1.0
    temperature: Positive = 0.1
    local_epochs: Annotated[int, Field(ge=0)] = 4
    alignment: Literal["average", "pairwise"] = "average"
    pilots_per_round: Count = 64

    def build(self) -> Method:
        """Return the method."""
        return FedMuscle(**self.options())


class SheafFMTLTable(PostHocTable):
    """Sheaf-FMTL; gamma and map_rate are the paper's."""

    name: Literal["sheaf-fmtl"] = "sheaf-fmtl"
    penalty: NotNegative = 1e-3
    gamma: Annotated[float, Field(gt=0, le=1)] = 1e-3
    map_rate: NotNegative = 1e-2
    every: Count | Literal["epoch"] = "epoch"
    scale: Positive | Literal["isometric"] = "isometric"

    def build(self) -> Method:
        """Return the method."""
        return SheafFMTL(**self.options())


class ComFedTable(Table):
    """ComFed; it learns its maps in training."""

    name: Literal["comfed"] = "comfed"
    penalty: NotNegative = 1.0
    projection: Count = 64
    every: Literal["epoch", "round"] = "epoch"

    def build(self) -> Method:
        """Return the method."""
        return ComFed(**self.model_dump(exclude={"name"}))


class CustomTable(Table):
    """A method of your own: `factory = "my_module:MyMethod"`, found from where you run."""

    name: Literal["custom"] = "custom"
    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    def build(self) -> Method:
        """Import the factory and call it with the options."""
        module, separator, attribute = self.factory.partition(":")
        if not separator:
            raise ConfigError(f"method.factory must be module:name, got {self.factory!r}")
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            factory = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as problem:
            raise ConfigError(f"method.factory {self.factory!r}: {problem}") from problem
        try:
            made: Method = factory(**self.options)
        except TypeError as problem:
            raise ConfigError(f"method.options {self.options!r}: {problem}") from problem
        return made


KINDS = {
    "sheaf-frl": SheafFRLTable,
    "non-cooperative": NonCooperativeTable,
    "fedproto": FedProtoTable,
    "fedmuscle": FedMuscleTable,
    "sheaf-fmtl": SheafFMTLTable,
    "comfed": ComFedTable,
    "custom": CustomTable,
}

MethodTable = Annotated[
    SheafFRLTable
    | NonCooperativeTable
    | FedProtoTable
    | FedMuscleTable
    | SheafFMTLTable
    | ComFedTable
    | CustomTable,
    Field(discriminator="name"),
]
