r"""The weight $\lambda$ of the gluing penalty, edge by edge and round by round."""

from dataclasses import field
from typing import Literal, Protocol, runtime_checkable

from sheafed.errors import InputError
from sheafed.options import Count, NotNegative, options


@runtime_checkable
class PenaltyWeight(Protocol):
    r"""How $\lambda$ of one edge develops. The value itself is the state, a plain float."""

    @property
    def active(self) -> bool:
        """Whether the weight is ever above 0."""

    def start(self) -> float:
        """Return the weight of the first round."""

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight after a round; the misalignment is None if nothing could be read."""


@options
class Constant:
    r"""The same $\lambda$ in every round, as in the paper; a number alone stands for it.

    Args:
        value: $\lambda$.
    """

    kind: Literal["constant"] = field(default="constant", kw_only=True, repr=False)
    value: NotNegative

    @property
    def active(self) -> bool:
        return self.value > 0

    def start(self) -> float:
        return self.value

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        return self.value


@options
class WarmUp:
    r"""$\lambda$ rises linearly from 0 to its value over the first rounds.

    >>> WarmUp(0.1, rounds=10).update(0.0, round=4, misalignment=None)
    0.05

    Args:
        value: the final $\lambda$.
        rounds: how many rounds it takes to get there.
    """

    kind: Literal["warm-up"] = field(default="warm-up", kw_only=True, repr=False)
    value: NotNegative
    rounds: Count

    @property
    def active(self) -> bool:
        return self.value > 0

    def start(self) -> float:
        return 0.0

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight of the round after this one."""
        return self.value * min(1.0, (round + 1) / self.rounds)


@options
class DualAscent:
    r"""$\lambda_e \leftarrow [\lambda_e + \alpha (r_e - \tau)]_0^{max}$, edge by edge.

    The multiplier of the constraint that an edge's misalignment $r_e$ stay below a tolerance:
    edges that are aligned well enough have no penalty.

    >>> DualAscent(tolerance=0.1, step=0.5).update(0.0, round=0, misalignment=0.2)
    0.05

    Args:
        tolerance: $\tau$.
        step: $\alpha$.
        initial: $\lambda_e$ of the first round.
        largest: the bound on $\lambda_e$.
    """

    kind: Literal["dual-ascent"] = field(default="dual-ascent", kw_only=True, repr=False)
    tolerance: NotNegative
    step: NotNegative = 0.01
    initial: NotNegative = 0.0
    largest: NotNegative = 0.1

    def __post_init__(self) -> None:
        if self.initial > self.largest:
            raise InputError(
                f"the initial weight {self.initial} is above the largest one, {self.largest}"
            )

    @property
    def active(self) -> bool:
        return self.largest > 0

    def start(self) -> float:
        return self.initial

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight after one step of dual ascent."""
        if misalignment is None:
            return weight
        return min(self.largest, max(0.0, weight + self.step * (misalignment - self.tolerance)))


def as_penalty(given: float | PenaltyWeight) -> PenaltyWeight:
    """Turn a number into a constant weight."""
    return Constant(given) if isinstance(given, int | float) else given
