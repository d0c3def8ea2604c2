"""What a soak is to be."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """What is run."""

    out: Path
    seconds: float
    agents: int
    seed: int
    every: float
    longest: float
    pause: float
    sample_every: float
    difference: float
    """Of accuracies, from those of the undisturbed training, at most."""

    @property
    def names(self) -> list[str]:
        return [f"agent{k}" for k in range(self.agents)]
