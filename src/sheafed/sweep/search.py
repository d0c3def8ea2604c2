"""Hyperparameter search instead of a grid: seeded, sequential, by validation score.

Optuna's TPE proposes each value from the scores of the previous ones. Only the runs are stored: an
interrupted search proposes the same values again and finds that their runs have finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from sheafed.errors import ConfigError, MissingDependencyError
from sheafed.seeds import derive
from sheafed.sweep.results import validation_score
from sheafed.sweep.runner import Runner
from sheafed.sweep.trials import Overrides, Trial, applicable_keys, check_keys, check_seeds


@dataclass(frozen=True)
class Range:
    """A key whose value is searched log-uniformly between two positive numbers."""

    key: str
    low: float
    high: float


def parse_range(option: str) -> Range:
    """Read `table.key=low..high`."""
    key, separator, text = option.partition("=")
    low, dots, high = text.partition("..")
    try:
        found = Range(key.strip(), float(low), float(high))
    except ValueError:
        found = None
    if not (separator and dots and found and found.key and 0 < found.low < found.high):
        raise ConfigError(
            f"expected a range of positive numbers like method.penalty=1e-5..1, got {option!r}"
        )
    return found


def search(
    variant: Overrides,
    seed: int,
    ranges: Sequence[Range],
    number: int,
    score: Callable[[Trial], float | None],
) -> list[Trial]:
    """Run a search for one variant and seed; return its trials.

    Args:
        variant: the row of the table.
        seed: of the runs and, together with the variant, of the proposals.
        ranges: those of the keys that the variant has; without any there is one trial.
        number: of trials.
        score: runs a trial and returns its validation score, None if it failed.
    """
    if not ranges:
        only = Trial(variant, (), seed)
        score(only)
        return [only]
    optuna = load_optuna()
    space = {r.key: optuna.distributions.FloatDistribution(r.low, r.high, log=True) for r in ranges}
    sampler = optuna.samplers.TPESampler(seed=derive(seed, "search", *variant) % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    trials = []
    for _ in range(number):
        asked = study.ask(space)
        trial = Trial(
            variant, tuple(f"{key}={value!r}" for key, value in asked.params.items()), seed
        )
        reached = score(trial)
        if reached is None:  # pruned rather than failed: TPE then keeps away from there
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(asked, reached)
        trials.append(trial)
    return trials


def search_all(
    runner: Runner,
    variants: Sequence[Overrides],
    ranges: Sequence[Range],
    number: int,
    seeds: Sequence[int],
) -> list[Trial]:
    """Search for every variant and seed, as many at a time as the runner has jobs."""
    load_optuna()
    check_seeds(seeds)
    for variant in variants:
        check_keys((*variant, *(r.key for r in ranges)))
    by_key = {r.key: r for r in ranges}
    own = {
        v: [by_key[k] for k in applicable_keys(list(by_key), runner.experiment(v))]
        for v in variants
    }
    for variant, sought in own.items():  # report mistakes before the first run
        for ends in ([(r.key, r.low) for r in sought], [(r.key, r.high) for r in sought]):
            runner.checked((*variant, *(f"{key}={value!r}" for key, value in ends)))

    def score(trial: Trial) -> float | None:
        runner.check([trial])
        return validation_score(trial, runner.out) if runner.ensure(trial) else None

    with runner:
        runner.expect(len(seeds) * sum(number if sought else 1 for sought in own.values()))
        pairs = [(variant, seed) for variant in variants for seed in seeds]
        found = runner.map(lambda pair: search(*pair, own[pair[0]], number, score), pairs)
    return [trial for trials in found for trial in trials]


def load_optuna() -> ModuleType:
    """Return the package, or raise an error with the command that installs it."""
    try:
        import optuna
    except ImportError as problem:
        raise MissingDependencyError(
            "a search needs optuna, which is not installed: pip install 'sheafed[tune]', or give "
            "--choose with the values to try"
        ) from problem
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
