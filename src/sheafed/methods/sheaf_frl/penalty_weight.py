r"""The weight $\lambda$ of the gluing penalty, edge by edge and round by round."""

from dataclasses import dataclass
from typing import Protocol

from sheafed.errors import InputError


class PenaltyWeight(Protocol):
    r"""How $\lambda$ of one edge develops. The value itself is the state, a plain float."""

    @property
    def active(self) -> bool:
        """Whether the weight is ever above 0."""

    def start(self) -> float:
        """Return the weight of the first round."""

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight after a round; the misalignment is None if nothing could be read."""


@dataclass(frozen=True)
class Constant:
    r"""The same $\lambda$ in every round, as in the paper."""

    value: float

    def __post_init__(self) -> None:
        _check("value", self.value)

    @property
    def active(self) -> bool:
        """Whether there is a penalty at all."""
        return self.value > 0

    def start(self) -> float:
        """Return the value."""
        return self.value

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class WarmUp:
    r"""$\lambda$ rises linearly from 0 to its value over the first rounds."""

    value: float
    rounds: int

    def __post_init__(self) -> None:
        _check("value", self.value)
        if self.rounds < 1:
            raise InputError(f"rounds of a warm-up must be at least 1, got {self.rounds}")

    @property
    def active(self) -> bool:
        """Whether there will be a penalty."""
        return self.value > 0

    def start(self) -> float:
        """Return 0."""
        return 0.0

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight of the round after this one."""
        return self.value * min(1.0, (round + 1) / self.rounds)


@dataclass(frozen=True)
class DualAscent:
    r"""$\lambda_e \leftarrow [\lambda_e + \alpha (r_e - \tau)]_0^{max}$, edge by edge.

    The multiplier of the constraint that an edge's misalignment $r_e$ stay below a tolerance:
    edges that are glued well enough are left in peace.
    """

    tolerance: float
    step: float = 0.01
    initial: float = 0.0
    largest: float = 1.0

    def __post_init__(self) -> None:
        for name in ("tolerance", "step", "initial", "largest"):
            _check(name, getattr(self, name))
        if self.initial > self.largest:
            raise InputError(
                f"the initial weight {self.initial} is above the largest one, {self.largest}"
            )

    @property
    def active(self) -> bool:
        """Whether the weight can rise above 0."""
        return self.largest > 0

    def start(self) -> float:
        """Return the initial weight."""
        return self.initial

    def update(self, weight: float, round: int, misalignment: float | None) -> float:
        """Return the weight after one step of dual ascent."""
        if misalignment is None:
            return weight
        return min(self.largest, max(0.0, weight + self.step * (misalignment - self.tolerance)))


def as_penalty(given: float | PenaltyWeight) -> PenaltyWeight:
    """Turn a number into a constant weight."""
    if isinstance(given, int | float):
        return Constant(float(given))
    if not hasattr(given, "update"):
        raise InputError(
            f"a penalty must be a number, Constant, WarmUp or DualAscent, got {given!r}"
        )
    return given


def _check(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InputError(f"{name} of a penalty must be a finite number of at least 0, got {value}")
