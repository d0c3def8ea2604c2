"""A figure of accuracies as data: which curves, over what, run how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sheafed.config.experiment import Experiment
from sheafed.config.presets import read_experiment
from sheafed.sweep.trials import Overrides, Trial, applicable
from sheafed.sweep.trials import plan as all_trials

PENALTY = "method.penalty"


@dataclass(frozen=True)
class Curve:
    """A method in a figure."""

    label: str
    overrides: Overrides
    """What makes the method; `{x}` in them is the value on the axis."""
    colour: str
    marker: str
    ours: bool = False
    """Beyond the paper: drawn apart."""


NON_COOPERATIVE = Curve("Non-cooperative", ("method.name=non-cooperative",), "#000000", "o")
SHEAF_FMTL = Curve("Sheaf-FMTL", ("method.name=sheaf-fmtl",), "#E69F00", "s")
COMFED = Curve("ComFed", ("method.name=comfed", "method.projection=64"), "#CC79A7", "^")
COMFED_AS_WIDE = Curve("ComFed", ("method.name=comfed", "method.projection={x}"), "#CC79A7", "^")
FEDPROTO = Curve("FedProto", ("method.name=fedproto",), "#56B4E9", "v")
FEDMUSCLE = Curve("FedMuscle", ("method.name=fedmuscle",), "#009E73", "P")
SHEAF_FRL = Curve("Sheaf-FRL", ("method.name=sheaf-frl",), "#0072B2", "D")
BELIEFS = Curve(
    "Sheaf-FRL with distillation",
    ("method.name=sheaf-frl", "method.distillation={}"),
    "#D55E00",
    "*",
    ours=True,
)

DECADES = ("1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "1")
"""The grid over the paper's interval for the penalty; the paper does not say how fine its was."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides a figure of accuracies."""

    name: str
    title: str
    """What it reproduces."""
    scale: str
    config: str
    """A preset, or a file."""
    settings: Overrides
    """Of all runs."""
    axis: str
    """The key that varies along the abscissa."""
    axis_label: str
    values: tuple[str, ...]
    curves: tuple[Curve, ...]
    penalties: tuple[str, ...]
    """The candidates for lambda."""
    seeds: tuple[int, ...]
    degree_weighted: bool
    """Whether communication averages directed edges rather than agents."""
    logarithmic: bool = False
    remark: str = ""
    """What else the paragraph must say."""

    def variant(self, curve: Curve, value: str) -> Overrides:
        """Return what a row of the table stands for."""
        own = (override.replace("{x}", value) for override in curve.overrides)
        return (*own, f"{self.axis}={value}")

    def experiment(self, overrides: Overrides) -> Experiment:
        """Return what a run with these overrides is."""
        return read_experiment(self.config, (*self.settings, *overrides))

    def has_penalty(self, curve: Curve) -> bool:
        """Whether there is a lambda to choose."""
        variant = self.variant(curve, self.values[0])
        return bool(applicable([PENALTY], self.experiment(variant)))

    def search(self) -> list[Trial]:
        """Return the trials among which validation chooses: all candidates, the first seed."""
        variants = [self.variant(curve, x) for x in self.values for curve in self.curves]
        choice = f"{PENALTY}={','.join(self.penalties)}"
        return all_trials(variants, [choice], self.seeds[:1], self.experiment)

    def repetitions(self, chosen: Sequence[Trial]) -> list[Trial]:
        """Return the chosen trials with the other seeds."""
        return [Trial(t.variant, t.candidate, seed) for t in chosen for seed in self.seeds[1:]]
