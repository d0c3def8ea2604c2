"""fig:hetero_bottleneck: accuracy of two agents against the size of their latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sheafed.models.zoo import BOTTLENECKS
from sheafed.reproduction.plan import (
    COMFED_AT_BOTTLENECK,
    DECADES,
    FEDMUSCLE,
    FEDPROTO,
    NON_COOPERATIVE,
    SHEAF_FMTL,
    SHEAF_FRL,
    SHEAF_FRL_DISTILLATION,
    AccuracyPlan,
)


def paper(seeds: Sequence[int]) -> AccuracyPlan:
    """All sizes, all data, 20 epochs, as in app:exp_details."""
    return AccuracyPlan(
        name="bottleneck",
        title="fig:hetero_bottleneck",
        scale="paper",
        config="pair",
        settings=("training.evaluate_every=20",),
        axis="model.bottleneck",
        axis_label="latent size d",
        values=tuple(map(str, BOTTLENECKS)),
        curves=(
            NON_COOPERATIVE,
            SHEAF_FMTL,
            COMFED_AT_BOTTLENECK,
            FEDPROTO,
            FEDMUSCLE,
            SHEAF_FRL,
            SHEAF_FRL_DISTILLATION,
        ),
        penalties=DECADES,
        extensions=3,
        seeds=tuple(seeds),
        degree_weighted=False,
        logarithmic=True,
    )


def quick(seeds: Sequence[int]) -> AccuracyPlan:
    """Three sizes, a part of the data, a few epochs."""
    return replace(
        paper(seeds),
        scale="quick",
        settings=(
            "data.train_fraction=0.08",
            "data.pilot_fraction=0.02",
            "training.epochs=10",
            "training.evaluate_every=10",
        ),
        values=("16", "32", "64"),
        penalties=("1e-2", "1e-1"),
        extensions=2,
    )
