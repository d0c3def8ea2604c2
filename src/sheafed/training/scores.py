"""One number of which more is better, from metrics that may be errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sheafed.errors import InputError
from sheafed.evaluation.result import mean

if TYPE_CHECKING:
    from sheafed.training.metadata import AgentMetadata


def metric_signs(metadata: Mapping[str, AgentMetadata]) -> dict[str, int]:
    """Return, by metric, 1 if a greater value is better, else -1; agents must agree on it."""
    signs: dict[str, int] = {}
    for name, known in metadata.items():
        sign = 1 if known.greater_is_better else -1
        if signs.setdefault(known.metric, sign) != sign:
            raise InputError(
                f"agent {name!r} and another do not agree whether a greater {known.metric!r} is "
                "better; give different metrics different names"
            )
    return dict(sorted(signs.items()))


def score(values: Mapping[str, float | None], signs: Mapping[str, int]) -> float | None:
    """Return the mean of signed private and communicated values: greater is always better.

    >>> score({"private_mse": 0.5, "communication_mse": 1.0, "misalignment": 0.1}, {"mse": -1})
    -0.75

    Args:
        values: by the keys of `Evaluation.summary`; keys of no metric are left out.
        signs: as of `metric_signs`.
    """
    signed = (
        (sign, values.get(f"{kind}_{metric}"))
        for metric, sign in signs.items()
        for kind in ("private", "communication")
    )
    return mean(sign * value for sign, value in signed if value is not None)
