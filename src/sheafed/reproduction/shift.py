"""fig:multiagent_shift: accuracy against the strength of the distribution shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sheafed.reproduction.plan import (
    COMFED,
    DECADES,
    NON_COOPERATIVE,
    SHEAF_FMTL,
    SHEAF_FRL,
    SHEAF_FRL_DISTILLATION,
    AccuracyPlan,
)

SMALL = ("agent-02", "agent-05", "agent-09", "agent-12", "agent-13")
"""The smallest agents of the fifteen whose target classes overlap."""


def paper(seeds: Sequence[int]) -> AccuracyPlan:
    """Fifteen agents, all data, 100 epochs, as in app:exp_details."""
    return AccuracyPlan(
        name="shift",
        title="fig:multiagent_shift",
        scale="paper",
        config="fifteen",
        settings=("training.evaluate_every=100",),
        axis="data.shift",
        axis_label="distribution shift s",
        values=tuple(f"0.{tenth}" for tenth in range(10)),
        curves=(NON_COOPERATIVE, SHEAF_FMTL, COMFED, SHEAF_FRL, SHEAF_FRL_DISTILLATION),
        penalties=DECADES,
        extensions=3,
        seeds=tuple(seeds),
        degree_weighted=True,
        remark="The paper does not list its values of s; these are ours.",
    )


def quick(seeds: Sequence[int]) -> AccuracyPlan:
    """Five of the fifteen agents, a part of the data, a few epochs."""
    members = ", ".join(f'"{name}"' for name in SMALL)
    return replace(
        paper(seeds),
        scale="quick",
        settings=(
            f"model.members=[{members}]",
            "data.train_fraction=0.065",
            "data.pilot_fraction=0.02",
            "training.epochs=10",
            "training.evaluate_every=10",
        ),
        values=("0.3", "0.7", "0.9"),
        penalties=("1e-2", "1e-1"),
        extensions=2,
        remark="",
    )
