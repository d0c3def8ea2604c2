"""Many runs of one config: which there are.

A sweep is a grid of overrides times seeds. Every run has a directory of its own, so a sweep that
was interrupted goes on with what is missing. Where a value is to be *chosen*, e.g. the penalty,
each candidate is run, and validation data choose (`sheafed.sweep.results`). A row whose
method has no such option is run once, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product

from sheafed.config.experiment import Experiment
from sheafed.errors import ConfigError

Overrides = tuple[str, ...]
"""Some `table.key=value`."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    variant: Overrides
    """What a row of the table stands for."""
    candidate: Overrides
    """What the validation score chooses among."""
    seed: int

    @property
    def overrides(self) -> Overrides:
        """All `table.key=value` of this run."""
        return (*self.variant, *self.candidate, f"seed={self.seed}")

    @property
    def directory(self) -> str:
        """A name that is readable and, by its digest, unique."""
        text = " ".join((*self.variant, *self.candidate))
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        pairs = (o.partition("=") for o in (*self.variant, *self.candidate))
        words = "_".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
        safe = "".join(c if c.isalnum() or c in "=._-" else "-" for c in words)[:80]
        return f"{safe or 'config'}-{digest}/seed-{self.seed}"


def rows(vary: Sequence[str], variants: Sequence[str] = ()) -> list[Overrides]:
    """Return the variants of a grid.

    Args:
        vary: `table.key=a,b,c`: every combination is a variant.
        variants: whole variants, several overrides joined by `;`, each combined with the grid.
    """
    whole = [tuple(o.strip() for o in v.split(";")) for v in variants] or [()]
    return [(*row, *point) for row in whole for point in product(*map(_values, vary))]


def plan(
    variants: Sequence[Overrides],
    choose: Sequence[str],
    seeds: Sequence[int],
    read: Callable[[Overrides], Experiment],
) -> list[Trial]:
    """Return the trials: every variant, with each of its candidates, for each seed.

    Args:
        variants: the rows of the table.
        choose: `table.key=a,b,c`: every combination is a candidate, of the keys that a row has.
        seeds: of each.
        read: the experiment that some overrides make.
    """
    check_seeds(seeds)
    options = {key_of(option): _values(option) for option in choose}
    trials = []
    for variant in variants:
        own = applicable(list(options), read(variant))
        for candidate in product(*(options[key] for key in own)):
            trials += [Trial(variant, candidate, seed) for seed in seeds]
    return trials


def applicable(keys: Sequence[str], experiment: Experiment) -> list[str]:
    """Return the keys that an experiment has: options differ from method to method."""
    options = type(experiment.method).model_fields
    return [
        key
        for key in keys
        if (path := key.split("."))[0] != "method" or (len(path) > 1 and path[1] in options)
    ]


def without_choice(
    keys: Sequence[str],
    variants: Sequence[Overrides],
    read: Callable[[Overrides], Experiment],
) -> dict[str, list[Overrides]]:
    """Return the variants that each key does not apply to; one that applies to none is an error."""
    missing = {}
    for key in keys:
        missing[key] = [v for v in variants if not applicable([key], read(v))]
        if len(missing[key]) == len(variants):
            names = sorted({read(v).method.name for v in variants})
            raise ConfigError(f"{key} cannot be chosen: {', '.join(names)} has no such option")
    return missing


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise unless there are seeds, and different ones."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must be different numbers, at least one, got {list(seeds)}")


def key_of(option: str) -> str:
    """Return the key of `table.key=...`."""
    return option.partition("=")[0].strip()


def _values(option: str) -> list[str]:
    key, separator, values = option.partition("=")
    listed = [v.strip() for v in values.split(",")]
    if not separator or not key.strip() or not all(listed):
        raise ConfigError(f"expected values like data.shift=0.3,0.7, got {option!r}")
    return [f"{key.strip()}={value}" for value in listed]
