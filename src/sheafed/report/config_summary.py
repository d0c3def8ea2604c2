"""Configs for readers: notable options in words, settings by table, differences between runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sheafed.report.run_reader import Record, RunDirectory
from sheafed.report.used_settings import used_settings


def describe_config(config: Record) -> list[str]:
    """Return a phrase for each option beyond plain Sheaf-FRL with agents that classify pixels."""
    return [*_method_options(config.get("method", {})), *_agent_options(config.get("model", {}))]


def config_tables(config: Record) -> dict[str, dict[str, str]]:
    """Return the used settings by table and key, as text; those of the top level are of `""`."""
    tables: dict[str, dict[str, str]] = {}
    for key, value in _used_as_text(config).items():
        table, _, rest = key.rpartition(".") if key.count(".") < 2 else key.partition(".")
        tables.setdefault(table, {})[rest] = value
    return tables


def comparable_settings(runs: Sequence[RunDirectory]) -> list[Record]:
    """Return the configs of runs, or what their summaries say if one of them has no config."""
    if all(run.config is not None for run in runs):
        return [run.config or {} for run in runs]
    return [run.summary.get("settings") or run.settings for run in runs]


def config_differences(configs: Sequence[Record]) -> dict[str, list[str | None]]:
    """Return the settings that differ, with the value of every config or None if it has none."""
    flat = [_used_as_text(config) for config in configs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in keys}
    return {key: found for key, found in values.items() if len(set(found)) > 1}


def _used_as_text(config: Record) -> dict[str, str]:
    return {key: _as_text(value) for key, value in used_settings(config).items()}


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
