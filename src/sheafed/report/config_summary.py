"""Configs for readers: notable options in words, settings by table, differences between runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sheafed.report.run_reader import Record


def describe_config(config: Record) -> list[str]:
    """Return a phrase for each option beyond plain Sheaf-FRL with agents that classify pixels."""
    return [*_method_options(config.get("method", {})), *_agent_options(config.get("model", {}))]


def config_tables(config: Record) -> dict[str, dict[str, str]]:
    """Return the settings by table and key, as text; the table of top-level settings is `""`."""
    tables: dict[str, dict[str, str]] = {}
    for key, value in _flatten(config).items():
        table, _, rest = key.rpartition(".") if key.count(".") < 2 else key.partition(".")
        tables.setdefault(table, {})[rest] = value
    return tables


def config_differences(configs: Sequence[Record]) -> dict[str, list[str | None]]:
    """Return the settings that differ, with the value of every config or None if it has none."""
    flat = [_flatten(config) for config in configs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in keys}
    return {key: found for key, found in values.items() if len(set(found)) > 1}


def _flatten(config: Record, prefix: str = "") -> dict[str, str]:
    """Return the settings as text by dotted keys, as `--set` takes them."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= _flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _as_text(value)
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n".join(map(_as_text, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _method_options(method: Record) -> Iterator[str]:
    if method.get("privacy") == "strict":
        yield "strict protocol"
    if method.get("distillation") is not None:
        yield "distillation"
    if disturbances := list(_channel_options(method.get("channel") or {})):
        yield f"channel with {', '.join(disturbances)}"
    if method.get("edge_dim") is not None:
        yield f"edge stalks of at most {method['edge_dim']} dimensions"
    if noise := method.get("noise"):
        yield (
            f"Gaussian noise on pilots, ε = {noise['epsilon']:g} and δ = {noise['delta']:g} "
            "per release"
        )


def _channel_options(channel: Record) -> Iterator[str]:
    if channel.get("snr_db") is not None:
        yield f"an SNR of {channel['snr_db']:g} dB"
    if channel.get("erasure"):
        yield f"{100 * channel['erasure']:g} % erasures"
    if channel.get("bits") is not None:
        yield f"{channel['bits']} bits per number"
    if channel.get("when") == "inference":
        yield "at inference only"


def _agent_options(model: Record) -> Iterator[str]:
    agents = model.get("agents", [])
    common = (model.get("objective") or {}).get("name", "cross-entropy")
    if common != "cross-entropy":
        yield f"objective {common}"
    own = {agent["name"]: agent.get("objective") for agent in agents} | model.get("objectives", {})
    yield from _by_value("objective", ((name, goal["name"]) for name, goal in own.items() if goal))
    modalities = ((agent["name"], agent.get("modality", "pixels")) for agent in agents)
    yield from _by_value(
        "modality", ((name, modality) for name, modality in modalities if modality != "pixels")
    )
    pretrained = ((agent["name"], agent.get("pretrained")) for agent in agents)
    yield from _by_value("pretrained encoder", ((name, used) for name, used in pretrained if used))
    unlabelled = [agent["name"] for agent in agents if agent.get("labels") is False]
    if without := [*unlabelled, *model.get("unlabelled", [])]:
        yield f"no labels for {', '.join(without)}"


def _by_value(option: str, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Group pairs of agent and value: `modality fourier for bo, cy`."""
    holders: dict[str, list[str]] = {}
    for name, value in pairs:
        holders.setdefault(value, []).append(name)
    for value, names in holders.items():
        yield f"{option} {value} for {', '.join(names)}"
