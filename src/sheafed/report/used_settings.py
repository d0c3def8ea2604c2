"""The settings of a config that had an effect on its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sheafed.training.run_identity import flatten

Flat = Mapping[str, Any]

ONLY_WITH: Mapping[str, tuple[str, str]] = {
    "data.shift": ("data.partition", "label-shift"),
    "data.concentration": ("data.partition", "dirichlet"),
    "data.classes_per_agent": ("data.partition", "pathological"),
    "data.shards_per_agent": ("data.partition", "shards"),
    "graph.density": ("graph.kind", "class-overlap"),
    "graph.probability": ("graph.kind", "erdos-renyi"),
    "model.bottleneck": ("model.family", "pair"),
    "training.momentum": ("training.optimizer", "sgd"),
}
"""Keys that are read for one value of another key."""
UNLESS: Mapping[str, str] = {
    "model.family": "model.agents",
    "model.bottleneck": "model.agents",
}
"""Keys that are not read where another one is given."""


def used_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were used, by dotted keys as `--set` takes them.

    What is None or empty was not used, nor was a key that belongs to another choice.

    >>> used_settings({"graph": {"kind": "ring", "density": 0.4, "edges": []}, "seed": 0})
    {'graph.kind': 'ring', 'seed': 0}
    """
    flat = flatten(config)
    return {key: value for key, value in flat.items() if _is_used(key, value, flat)}


def _is_used(key: str, value: Any, flat: Flat) -> bool:
    if value is None or value in ([], {}):
        return False
    if flat.get(UNLESS.get(key, "")):
        return False
    choice, needed = ONLY_WITH.get(key, ("", ""))
    return choice not in flat or flat[choice] == needed
