"""The trials of a sweep: a grid of overrides times seeds.

Every trial has a directory of its own, so an interrupted sweep continues with what is missing.
Where a value is to be *chosen*, e.g. the penalty, each candidate is run and the validation score
decides (`sheafed.sweep.results`). A variant whose method has no such option is run without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise, product

from sheafed.config.experiment import Experiment
from sheafed.errors import ConfigError
from sheafed.options import option_names, tag_of

Overrides = tuple[str, ...]
"""Some `table.key=value`."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    variant: Overrides
    """A row of the table."""
    candidate: Overrides
    """One of the settings that the validation score chooses from."""
    seed: int

    @property
    def overrides(self) -> Overrides:
        return (*self.variant, *self.candidate, f"seed={self.seed}")

    @property
    def directory(self) -> str:
        """A readable name, made unique by a digest."""
        text = " ".join((*self.variant, *self.candidate))
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        pairs = (o.partition("=") for o in (*self.variant, *self.candidate))
        words = "_".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
        safe = "".join(c if c.isalnum() or c in "=._-" else "-" for c in words)[:80]
        return f"{safe or 'config'}-{digest}/seed-{self.seed}"


def expand_variants(vary: Sequence[str], variants: Sequence[str] = ()) -> list[Overrides]:
    """Return the variants of a grid.

    Args:
        vary: `table.key=a,b,c`: every combination is a variant.
        variants: whole variants, several overrides joined by `;`, each combined with the grid.
    """
    whole = [tuple(split_outside_brackets(v, ";")) for v in variants] or [()]
    found = [(*variant, *point) for variant in whole for point in product(*map(_values, vary))]
    for variant in found:
        check_keys(variant)
    return found


def make_trials(
    variants: Sequence[Overrides],
    choose: Sequence[str],
    seeds: Sequence[int],
    read: Callable[[Overrides], Experiment],
) -> list[Trial]:
    """Return every variant, with each of its candidates, for each seed.

    Args:
        variants: the rows of the table.
        choose: `table.key=a,b,c`: every combination of the keys that a variant has is a candidate.
        seeds: of each.
        read: returns the experiment with some overrides.
    """
    check_seeds(seeds)
    for variant in variants:
        check_keys((*variant, *choose))
    options = {key_of(option): _values(option) for option in choose}
    trials = []
    for variant in variants:
        own = applicable_keys(list(options), read(variant))
        for candidate in product(*(options[key] for key in own)):
            trials += [Trial(variant, candidate, seed) for seed in seeds]
    return trials


def applicable_keys(keys: Sequence[str], experiment: Experiment) -> list[str]:
    """Return the keys that an experiment has: options differ from method to method."""
    options = {"name", *option_names(experiment.method)}
    return [
        key
        for key in keys
        if (path := key.split("."))[0] != "method" or (len(path) > 1 and path[1] in options)
    ]


def variants_without(
    keys: Sequence[str],
    variants: Sequence[Overrides],
    read: Callable[[Overrides], Experiment],
) -> dict[str, list[Overrides]]:
    """Return, by key, the variants that it does not apply to; raise if that is all of them."""
    missing = {}
    for key in keys:
        missing[key] = [v for v in variants if not applicable_keys([key], read(v))]
        if len(missing[key]) == len(variants):
            names = ", ".join(sorted({tag_of(read(v).method) for v in variants}))
            raise ConfigError(f"{key} cannot be chosen: unknown option of {names}")
    return missing


def check_keys(options: Sequence[str]) -> None:
    """Raise if a key is given twice: its last value would be the one that counts."""
    keys = [key_of(option) for option in options]
    if "seed" in keys:
        raise ConfigError("seed is not varied or chosen; give the seeds of all rows by --seeds")
    if twice := [key for key, number in Counter(keys).items() if number > 1]:
        raise ConfigError(
            f"{' and '.join(twice)} is given twice for one row, in {'; '.join(options)}; give "
            "all values of a key at once, to be varied or to be chosen from"
        )


def check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must be different numbers, at least one, got {list(seeds)}")


def parse_seeds(text: str) -> list[int]:
    """Read different numbers like `0,1,2`."""
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError as problem:
        raise ConfigError(f"--seeds must be numbers like 0,1,2, got {text!r}") from problem
    check_seeds(seeds)
    return seeds


def key_of(option: str) -> str:
    """Return the key of `table.key=...`."""
    return option.partition("=")[0].strip()


_SYMBOLS = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[\[\]{},;"\']')


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split a text at a separator, but not inside the brackets, braces and quotes of a TOML value.

    >>> split_outside_brackets('[0.8, 0.1, 0.1], "a,b", c', ",")
    ['[0.8, 0.1, 0.1]', '"a,b"', 'c']
    """
    depth, cuts = 0, [-1]
    for match in _SYMBOLS.finditer(text):
        symbol = match.group()
        depth += (symbol in "[{") - (symbol in "]}")
        if depth < 0 or symbol in ('"', "'"):  # a single quote mark: its partner is missing
            break
        if depth == 0 and symbol == separator:
            cuts.append(match.start())
    else:
        if depth == 0:
            return [text[a + 1 : b].strip() for a, b in pairwise([*cuts, len(text)])]
    raise ConfigError(f"brackets or quotes do not match in {text!r}; write values as in TOML")


def _values(option: str) -> list[str]:
    key, separator, values = option.partition("=")
    listed = split_outside_brackets(values, ",")
    if not separator or not key.strip() or not all(listed):
        raise ConfigError(f"expected values like data.shift=0.3,0.7, got {option!r}")
    return [f"{key.strip()}={value}" for value in listed]
