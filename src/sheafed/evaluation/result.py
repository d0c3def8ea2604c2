"""The values of one evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sheafed.metrics.metric import ACCURACY
from sheafed.sheaf.routing import check_agents

Pair = tuple[str, str]
Rows = Mapping[str, list[list[Any]]]
"""An evaluation as JSON: `[*key, value]` rows by the name of the field."""


@dataclass(frozen=True)
class Evaluation:
    """Values of the agents' metrics, by agent and by (sender, receiver) of neighbours.

    The metric of a pair is the sender's, which has the targets. What could not be computed is
    absent.
    """

    private: dict[str, float] = field(default_factory=dict)
    communication: dict[tuple[str, str], float] = field(default_factory=dict)
    oracle: dict[tuple[str, str], float] = field(default_factory=dict)
    """The value if the receiver encodes the sender's test inputs itself: a comparison, not a bound
    of communication."""
    misalignment: dict[tuple[str, str], float] = field(default_factory=dict)
    """By (head, tail): the normalised residual of the edge on the evaluation pilots."""
    metrics: dict[str, str] = field(default_factory=dict)
    """The name of each agent's metric; accuracy where there is none."""

    def metric_of(self, agent: str) -> str:
        return self.metrics.get(agent, ACCURACY.name)

    @property
    def metric_names(self) -> list[str]:
        """The names of all metrics."""
        return sorted(set(self.metrics.values())) or [ACCURACY.name]

    def communication_of(self, receiver: str, metric: str | None = None) -> float | None:
        r"""Return $A_i^{comm}$: the mean over the agent's neighbours as senders.

        Over those with a metric: by default the agent's own.
        """
        check_agents([receiver], self._known)
        wanted = metric or self.metric_of(receiver)
        heard = self._heard.get(receiver, {})
        return mean(value for sender, value in heard.items() if self.metric_of(sender) == wanted)

    def of_agent(self, name: str) -> dict[str, float | None]:
        """Return the private and the communicated values of an agent, by the keys of records."""
        check_agents([name], self._known)
        own = self.metric_of(name)
        senders = {self.metric_of(sender) for sender in self._heard.get(name, {})}
        return {f"private_{own}": self.private.get(name)} | {
            f"communication_{metric}": self.communication_of(name, metric)
            for metric in sorted({own, *senders})
        }

    def of_pair(self, sender: str, receiver: str) -> dict[str, float | None]:
        """Return the values of what one agent sends to another, by the keys of summaries.

        Those that were not measured are None.
        """
        check_agents([sender, receiver], self._known)
        return self.of_edge(sender, receiver)

    def of_edge(self, sender: str, receiver: str) -> dict[str, float | None]:
        """Return what `of_pair` does, also for agents of which nothing is known here.

        A peer may not know the metric of an absent neighbour; it has no value then, of its own.
        """
        metric, pair = self.metrics.get(sender, self.metric_of(receiver)), (sender, receiver)
        return {
            f"communication_{metric}": self.communication.get(pair),
            f"oracle_{metric}": self.oracle.get(pair),
        }

    def without(self, name: str) -> Evaluation:
        """Return the results that do not involve an agent."""

        def others(pairs: Mapping[Pair, float]) -> dict[Pair, float]:
            return {pair: value for pair, value in pairs.items() if name not in pair}

        return Evaluation(
            private={agent: v for agent, v in self.private.items() if agent != name},
            communication=others(self.communication),
            oracle=others(self.oracle),
            misalignment=others(self.misalignment),
            metrics={agent: metric for agent, metric in self.metrics.items() if agent != name},
        )

    def summary(self) -> dict[str, float | None]:
        """Return the averages that are reported, of each metric over the agents that have it.

        The plain communication value averages agents; the degree-weighted one, which the
        paper reports, averages directed edges.
        """
        found: dict[str, float | None] = {}
        for metric in self.metric_names:
            private = (v for agent, v in self.private.items() if self.metric_of(agent) == metric)
            communication = self._judged_by(metric, self.communication)
            found |= {
                f"private_{metric}": mean(private),
                f"communication_{metric}": _mean_of_receivers(communication),
                f"communication_{metric}_degree_weighted": mean(communication.values()),
                f"oracle_{metric}": _mean_of_receivers(self._judged_by(metric, self.oracle)),
            }
        return found | {"misalignment": mean(self.misalignment.values())}

    def rows(self) -> Rows:
        """Return the results as JSON; `merge` puts those of several processes together."""
        return {
            "private": [[name, value] for name, value in self.private.items()],
            "communication": [[r, s, value] for (s, r), value in self.communication.items()],
            "misalignment": [[*edge, value] for edge, value in self.misalignment.items()],
            "metrics": [[name, metric] for name, metric in self.metrics.items()],
        }

    @cached_property
    def _known(self) -> dict[str, None]:
        """The names of all agents that have a metric, or a value."""
        pairs = (*self.communication, *self.oracle, *self.misalignment)
        named = (*self.metrics, *self.private, *(name for pair in pairs for name in pair))
        return dict.fromkeys(named)

    @cached_property
    def _heard(self) -> dict[str, dict[str, float]]:
        """What each receiver heard, by sender: looking for it among all pairs would take N times
        as long. An evaluation is complete before it is asked for an agent."""
        return _by_receiver(self.communication)

    def _judged_by(self, metric: str, pairs: Mapping[Pair, float]) -> dict[Pair, float]:
        return {pair: v for pair, v in pairs.items() if self.metric_of(pair[0]) == metric}


def merge(parts: Iterable[Rows]) -> Evaluation:
    """Return the evaluation of all agents, sorted by name: the order decides the means' last bit.

    Oracle values are not part of it; they are measured where all inputs are.
    """
    listed = list(parts)

    def rows(name: str) -> list[list[Any]]:
        return sorted(row for part in listed for row in part[name])

    return Evaluation(
        private=dict(rows("private")),
        communication={(s, r): value for r, s, value in rows("communication")},
        misalignment={(head, tail): value for head, tail, value in rows("misalignment")},
        metrics=dict(rows("metrics")),
    )


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of some numbers; None if there are none."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def _mean_of_receivers(values: Mapping[Pair, float]) -> float | None:
    means = (mean(heard.values()) for _, heard in sorted(_by_receiver(values).items()))
    return mean(value for value in means if value is not None)


def _by_receiver(values: Mapping[Pair, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (sender, receiver), value in values.items():
        found.setdefault(receiver, {})[sender] = value
    return found
