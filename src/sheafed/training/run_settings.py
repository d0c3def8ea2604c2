"""What was trained, for readers: method, agents, graph and pilots as a table of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch

from sheafed.options import TAGS
from sheafed.training.metadata import AgentMetadata
from sheafed.training.run_identity import describe

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

Settings = dict[str, Any]


def run_settings(network: Network) -> Settings:
    """Return the settings of a run as JSON, with the keys of a config where there is one."""
    schedule = network.history.schedule
    return {
        "method": method_settings(network.method),
        "training": {
            "epochs": schedule.epochs,
            "rounds_per_epoch": schedule.rounds_per_epoch,
            "evaluate_every": schedule.evaluate_every,
        },
        "graph": {"edges": sorted(sorted(edge) for edge in network.graph.edges)},
        "pilots": {"samples": network.pilots.total, "digest": network.pilots.digest()[:12]},
        "agents": {name: _agent_settings(known) for name, known in network.metadata.items()},
        "seed": network.history.seed,
    }


def run_conditions(network: Network, oracle: bool, vectorize: bool) -> Settings:
    """Return the settings that may change when a run is resumed, by name.

    All others decide what is trained, and are the identity of the run. With more epochs a run is
    the one that it would have been with as many from the beginning, but for the evaluation of its
    old end, which stays.
    """
    return {
        "evaluate_every": network.history.schedule.evaluate_every,
        "oracle": oracle,
        "vectorize": vectorize,
        "threads": torch.get_num_threads(),
        **{f"device of {name}": known.device for name, known in network.metadata.items()},
    }


def method_settings(method: Any) -> Settings:
    """Return the options of a method by name, its own name first.

    >>> from sheafed import NonCooperative
    >>> method_settings(NonCooperative())["name"]
    'non-cooperative'
    """
    found = _plain(method)
    return found if isinstance(found, dict) else {"name": found}


def _agent_settings(known: AgentMetadata) -> Settings:
    return {
        "encoder": known.encoder,
        "latent_size": known.dimension,
        "head": known.head,
        "objective": known.objective,
        "metric": known.metric,
        "optimizer": known.optimizer,
        "learning_rate": known.learning_rate,
        "batch_size": known.batch_size,
        "training_samples": known.training_samples,
    }


def _plain(value: Any) -> Any:
    """Return options as nested tables, and what JSON does not know as text."""
    if is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in fields(value) if field.repr or field.name in TAGS]
        tables = {name: _plain(getattr(value, name)) for name in shown}
        return tables if tables else describe(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else describe(value)
