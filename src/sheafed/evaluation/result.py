"""The accuracies of one evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = Mapping[str, list[list[Any]]]
"""An evaluation as JSON: `[*key, value]` rows by the name of the field."""


@dataclass(frozen=True)
class Evaluation:
    """Accuracies by agent and by (sender, receiver), for all pairs of neighbours."""

    private: dict[str, float] = field(default_factory=dict)
    communication: dict[tuple[str, str], float] = field(default_factory=dict)
    oracle: dict[tuple[str, str], float] = field(default_factory=dict)
    """The receiver's accuracy if it encodes the sender's test inputs itself: a comparison, not an
    upper bound of communication accuracy."""
    misalignment: dict[tuple[str, str], float] = field(default_factory=dict)
    """By (head, tail): the normalised residual of the edge on the evaluation pilots."""

    def communication_of(self, receiver: str) -> float | None:
        r"""Return $A_i^{comm}$: the mean over the agent's neighbours as senders."""
        return _mean_at(receiver, self.communication)

    def without(self, name: str) -> Evaluation:
        """Return the results that do not involve an agent."""
        return Evaluation(
            {agent: v for agent, v in self.private.items() if agent != name},
            *(
                {pair: v for pair, v in found.items() if name not in pair}
                for found in (self.communication, self.oracle, self.misalignment)
            ),
        )

    def summary(self) -> dict[str, float | None]:
        """Return the averages that are reported.

        The plain communication accuracy averages agents; the degree-weighted one, which the
        paper reports, averages directed edges.
        """
        return {
            "private_accuracy": mean(self.private.values()),
            "communication_accuracy": _mean_of_receivers(self.communication),
            "communication_accuracy_degree_weighted": mean(self.communication.values()),
            "oracle_accuracy": _mean_of_receivers(self.oracle),
            "misalignment": mean(self.misalignment.values()),
        }

    def rows(self) -> Rows:
        """Return the results as JSON; `merge` puts those of several processes together."""
        return {
            "private": [[name, value] for name, value in self.private.items()],
            "communication": [[r, s, value] for (s, r), value in self.communication.items()],
            "misalignment": [[*edge, value] for edge, value in self.misalignment.items()],
        }


def merge(parts: Iterable[Rows]) -> Evaluation:
    """Return the evaluation of all agents, sorted by name: the order decides the means' last bit.

    Oracle accuracies are not part of it; they are measured where all inputs are.
    """
    listed = list(parts)

    def rows(name: str) -> list[list[Any]]:
        return sorted(row for part in listed for row in part[name])

    return Evaluation(
        private=dict(rows("private")),
        communication={(s, r): value for r, s, value in rows("communication")},
        misalignment={(head, tail): value for head, tail, value in rows("misalignment")},
    )


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of some numbers; None if there are none."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def _mean_of_receivers(accuracies: Mapping[tuple[str, str], float]) -> float | None:
    receivers = sorted({receiver for _, receiver in accuracies})
    return mean(_mean_at(receiver, accuracies) or 0.0 for receiver in receivers)


def _mean_at(receiver: str, accuracies: Mapping[tuple[str, str], float]) -> float | None:
    return mean(value for (_, r), value in accuracies.items() if r == receiver)
