"""A figure of accuracies as data: its curves, its axis and the settings of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sheafed.config.experiment import Experiment
from sheafed.config.reading import read_experiment
from sheafed.sweep.results import Row
from sheafed.sweep.trials import Overrides, Trial, applicable_keys, make_trials

PENALTY = "method.penalty"


@dataclass(frozen=True)
class Curve:
    """A method in a figure."""

    label: str
    overrides: Overrides
    """Select the method; `{x}` stands for the value on the axis."""
    colour: str
    marker: str
    beyond_paper: bool = False
    """Drawn with a dashed line."""
    shrinkage: str | None = None
    """The key of a shrinkage that training depends on, and that is therefore chosen by runs."""


NON_COOPERATIVE = Curve("Non-cooperative", ("method.name=non-cooperative",), "#000000", "o")
SHEAF_FMTL = Curve("Sheaf-FMTL", ("method.name=sheaf-fmtl",), "#E69F00", "s")
COMFED = Curve("ComFed", ("method.name=comfed", "method.projection=64"), "#CC79A7", "^")
COMFED_AT_BOTTLENECK = Curve(
    "ComFed", ("method.name=comfed", "method.projection={x}"), "#CC79A7", "^"
)
FEDPROTO = Curve("FedProto", ("method.name=fedproto",), "#56B4E9", "v")
FEDMUSCLE = Curve("FedMuscle", ("method.name=fedmuscle",), "#009E73", "P")
SHRINKAGE = "method.whitening.shrinkage"
SHEAF_FRL = Curve("Sheaf-FRL", ("method.name=sheaf-frl",), "#0072B2", "D", shrinkage=SHRINKAGE)
SHEAF_FRL_DISTILLATION = Curve(
    "Sheaf-FRL with distillation",
    ("method.name=sheaf-frl", "method.distillation={}"),
    "#D55E00",
    "*",
    beyond_paper=True,
    shrinkage=SHRINKAGE,
)
RECOMMENDED = Curve(
    "Consensus distillation",
    ("method.name=consensus-distillation",),
    "#D55E00",
    "*",
    beyond_paper=True,
)
"""The method that the project recommends."""

DECADES = ("1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "1")
"""A grid over the paper's interval for the penalty; the paper does not give its resolution."""


@dataclass(frozen=True)
class AccuracyPlan:
    """Everything that determines a figure of accuracies."""

    name: str
    title: str
    """The label of the reproduced figure."""
    scale: str
    config: str
    """A preset, or a file."""
    settings: Overrides
    """Common to all runs."""
    axis: str
    """The key that varies along the abscissa."""
    axis_label: str
    values: tuple[str, ...]
    curves: tuple[Curve, ...]
    penalties: tuple[str, ...]
    """The first candidates for lambda."""
    extensions: int
    """How many candidates are added, one by one, while the best one is at the edge."""
    seeds: tuple[int, ...]
    degree_weighted: bool
    """Whether communication accuracy is averaged over directed edges rather than agents."""
    logarithmic: bool = False
    remark: str = ""
    """Added to the description."""

    @property
    def columns(self) -> dict[str, str]:
        """The keys of a table's columns, by heading."""
        suffix = "_degree_weighted" if self.degree_weighted else ""
        return {
            "private": "private_accuracy",
            "communication (fair)": f"fair{suffix}",
            "communication (as in paper)": f"as_in_paper{suffix}",
            "oracle": f"oracle_accuracy{suffix}",
        }

    def variant(self, curve: Curve, value: str) -> Overrides:
        """Return the overrides of a row of the table."""
        own = (override.replace("{x}", value) for override in curve.overrides)
        return (*own, f"{self.axis}={value}")

    def experiment(self, overrides: Overrides) -> Experiment:
        """Return the experiment with these overrides."""
        return read_experiment(self.config, (*self.settings, *overrides))

    def has_penalty(self, curve: Curve) -> bool:
        """Whether there is a lambda to choose."""
        variant = self.variant(curve, self.values[0])
        return bool(applicable_keys([PENALTY], self.experiment(variant)))

    def candidate_trials(self) -> list[Trial]:
        """Return the trials that a choice of lambda begins with: the grid, the first seed."""
        variants = [self.variant(curve, x) for x in self.values for curve in self.curves]
        choice = f"{PENALTY}={','.join(self.penalties)}"
        return make_trials(variants, [choice], self.seeds[:1], self.experiment)

    def repetitions(self, chosen: Sequence[Trial]) -> list[Trial]:
        """Return the chosen trials with the other seeds."""
        return [Trial(t.variant, t.candidate, seed) for t in chosen for seed in self.seeds[1:]]


@dataclass(frozen=True)
class Point:
    """The results of a method at a value of the axis."""

    curve: Curve
    value: str
    row: Row | None
    """None if no run finished."""
    penalty: str | None
    """The chosen lambda, if the method has one."""
    at_edge: bool = False
    """Whether no larger, or no smaller, lambda was tried."""
    shrinkages: tuple[float, ...] = ()
    """Those chosen, if latents are whitened: one for all runs, or one in each."""
    failures: tuple[str, ...] = ()
    """The errors of failed trials."""
