"""Which agents of a process take their rounds together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import TypedDict

from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.pilots.absent_pilots import AbsentPilots
from sheafed.pilots.pilot_set import PilotSet
from sheafed.vectorized.cohort import StackedCohort
from sheafed.vectorized.stacked_model import SameModels
from sheafed.vectorized.stacked_optimizer import optimizer_signature
from sheafed.vectorized.structure import WatchedAgents, modes, signature, switched_parts, why_alone

FEWEST = 16
"""Agents of one structure below which nothing is gained; what a few agents compute is then the
same, to the bit, in one process as in several."""
MOST = 72
"""Members of one cohort: with fewer, less is shared; with more, activations leave the caches."""


class Summary(TypedDict):
    """How many agents take their rounds together, and alone by the reason."""

    together: int
    alone: dict[str, int]


class Grouping:
    """Cohorts of agents that have one structure; all others are alone.

    Args:
        agents: of this process, by name.
        pilots: of the network.
        alone: why an agent must take its rounds alone, for those that must.
        kinds: what the members of a cohort must have in common beside the structure, if anything.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        pilots: PilotSet,
        alone: Mapping[str, str],
        kinds: Mapping[str, Hashable] = MappingProxyType({}),
    ) -> None:
        self._agents, self._pilots = agents, pilots
        self._alone, self._kinds = dict(alone), kinds
        self._group()

    def summary(self) -> Summary:
        """Return how many agents take their rounds together, and why the others do not."""
        alone = dict(sorted(Counter(self.alone.values()).items()))
        return {"together": sum(len(same.agents) for same in self._cohorts), "alone": alone}

    @contextmanager
    def round(self) -> Iterator[list[tuple[list[str], StackedCohort | None]]]:
        """Return the agents by cohort for a round, in which these compute for their members."""
        if self._modes != modes(*self._switched) or self._watched.changed():
            self._group()
        found: list[tuple[list[str], StackedCohort | None]] = [
            ([name], None) for name in self.alone
        ]
        for same in self._cohorts:
            cohort = StackedCohort(same, self._pilots)
            found.append(([agent.name for agent in same.agents], cohort))
            for agent in same.agents:
                agent.cohort = cohort
        try:
            yield found
        finally:
            for agent in self._agents.values():
                agent.cohort = None

    def _group(self) -> None:
        found = [switched_parts(agent) for agent in self._agents.values()]
        self._switched = [m for ms, _ in found for m in ms], [p for _, ps in found for p in ps]
        self._modes = modes(*self._switched)
        self.alone: dict[str, str] = {}
        groups: dict[Hashable, list[str]] = {}
        holders = Counter(p for agent in self._agents.values() for p in agent.parameters)
        for name, agent in self._agents.items():
            reason = self._alone.get(name) or why_alone(agent)
            if reason is None and any(holders[p] > 1 for p in agent.parameters):
                reason = "weights that another agent has too"
            if reason is not None:
                self.alone[name] = reason
            else:
                groups.setdefault(self._key(agent), []).append(name)
        self._cohorts: list[SameModels] = []
        for names in groups.values():
            if len(names) < FEWEST:
                self.alone |= dict.fromkeys(names, f"fewer than {FEWEST} agents of its structure")
                continue
            for part in evenly(names, -(-len(names) // MOST)):
                self._cohorts.append(SameModels([self._agents[name] for name in part]))
        self._watched = WatchedAgents(a for same in self._cohorts for a in same.agents)

    def _key(self, agent: Agent) -> Hashable:
        """Return what the members of a cohort have in common."""
        pilots: Hashable = None
        if not isinstance(self._pilots, AbsentPilots):
            inputs = self._pilots.of(agent.name)
            pilots = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else None
        return (
            signature(agent),
            modes(*switched_parts(agent)),
            optimizer_signature(agent.optimizer, agent.parameters),
            pilots,
            self._kinds.get(agent.name),
        )


def merge_summaries(parts: Iterable[Summary]) -> Summary:
    """Return the summary of all agents, given those of several processes.

    >>> merge_summaries([{"together": 16, "alone": {"no head": 1}}, {"together": 0, "alone": {}}])
    {'together': 16, 'alone': {'no head': 1}}
    """
    together, alone = 0, Counter[str]()
    for part in parts:
        together += part["together"]
        alone.update(part["alone"])
    return {"together": together, "alone": dict(sorted(alone.items()))}


def evenly(names: list[str], parts: int) -> list[list[str]]:
    """Divide names into parts whose lengths differ by at most one.

    >>> evenly(["a", "b", "c", "d", "e"], 2)
    [['a', 'b'], ['c', 'd', 'e']]
    """
    ends = [k * len(names) // parts for k in range(parts + 1)]
    return [names[start:end] for start, end in pairwise(ends)]
