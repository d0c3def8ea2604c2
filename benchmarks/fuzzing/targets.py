"""The readers of what others wrote, each with valid inputs and what must hold for any other.

A target's `check` returns whether an input was accepted. An input that is not raises the documented
error, and nothing else; one that is accepted is a value that is written and read again as it is.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzzing.mutations import mutate


class WronglyAcceptedError(AssertionError):
    """An input was accepted although it is not what would be written for its value."""


@dataclass(frozen=True)
class Target:
    """A reader.

    Args:
        name: on the command line.
        seeds: valid inputs.
        check: reads an input.
        repair: makes checksums and lengths of a damaged input right again, so that what they
            protect is reached; half of the inputs are repaired.
        damage: how an input is damaged.
    """

    name: str
    seeds: Sequence[bytes]
    check: Callable[[bytes], bool]
    repair: Callable[[bytes], bytes] = lambda data: data
    damage: Callable[[bytes, random.Random, Sequence[bytes]], bytes] = mutate

    def case(self, draw: random.Random) -> bytes:
        """Return a damaged input."""
        data = self.damage(draw.choice(list(self.seeds)), draw, self.seeds)
        return self.repair(data) if draw.random() < 0.5 else data


def all_targets(directory: Path) -> dict[str, Target]:
    """Return the targets, by name; those that read files write their inputs to a directory."""
    from fuzzing import alignments, checkpoints, command_lines, configs, messages

    targets = [
        messages.target(),
        checkpoints.target(directory),
        alignments.target(directory),
        configs.target(directory),
        command_lines.target(directory),
    ]
    return {target.name: target for target in targets}
