"""Judging agents on other data than their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from reprlib import repr as short
from typing import Any

from sheafed.agents.agent import Agent
from sheafed.agents.checks import check_judged
from sheafed.agents.collation import TARGET_COLUMNS
from sheafed.errors import UnknownAgentError


@contextmanager
def judged_on(agents: Mapping[str, Agent], given: Any) -> Iterator[None]:
    """Replace the test data of agents while the context is open.

    Args:
        agents: by name.
        given: data for all of them, or a mapping from agents to data; those that it leaves out have
            none.
    """
    by_agent = given
    if not isinstance(given, Mapping):
        by_agent = dict.fromkeys(agents, given)
    elif not set(given) & set(agents):
        _check_columns(given, agents)
        by_agent = dict.fromkeys(agents, given)
    if unknown := sorted(set(by_agent) - set(agents)):
        raise UnknownAgentError(f"data of unknown agents {unknown}; agents: {sorted(agents)}")
    samples = {name: agents[name].samples_of(data) for name, data in by_agent.items()}
    for name, own in samples.items():
        check_judged(agents[name], own)
    kept = {name: agent.data for name, agent in agents.items()}
    try:
        for name, agent in agents.items():
            agent.data = replace(agent.data, test=samples.get(name), seen_by=None)
        yield
    finally:
        for name, agent in agents.items():
            agent.data = kept[name]


def _check_columns(given: Mapping[str, Any], agents: Mapping[str, Agent]) -> None:
    """Raise unless a mapping that names no agent has a column of labels."""
    named = {agent.target for agent in agents.values() if agent.target is not None}
    columns = sorted(named) + [name for name in TARGET_COLUMNS if name not in named]
    if not set(given) & set(columns):
        raise UnknownAgentError(
            f"data of {short(list(given))}, none of which is an agent, or a column "
            f"{' or '.join(map(repr, columns))}; give a mapping from agents to data, with "
            f"keys among {sorted(agents)}, or labelled data for all of them"
        )
