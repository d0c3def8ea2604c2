"""What tables of all methods share: which there are, how options are chosen, and a row's figures.

The options of each method are chosen by the validation score, the mean of private and
communication accuracy on validation data, over the seeds `--choice-seeds`; the chosen ones
then run with all seeds. Options are chosen one after the other, in the order of a grid. A penalty,
or another value that a grid can be widened by, is not accepted at the end of those tried before
the next one is worse. Methods that are aligned after training choose the shrinkage of their maps
in every run, by validation data. An interrupted command continues where it stopped.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sheafed.config import Experiment, read_experiment
from sheafed.config.agents import agent_specs
from sheafed.sweep import Overrides, Runner, Trial, with_deviation
from sheafed.sweep.results import average, is_finished, validation_score

PENALTY = "method.penalty"
WHITENING = "method.whitening"
CONFIDENCE = "method.distillation.confidence"
WEIGHT = "method.distillation.weight"


@dataclass(frozen=True)
class Grid:
    """What options are chosen from.

    Args:
        candidates: of every option.
        start: the values of options that are not chosen yet.
        ladders: all values, in order, by which candidates are widened.
    """

    candidates: Mapping[str, Sequence[str]]
    start: Mapping[str, str]
    ladders: Mapping[str, Sequence[str]]


PENALTIES = (
    *("0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"),
    *("3", "10", "30", "100", "300"),
)
GRID = Grid(
    candidates={
        PENALTY: ("0.03", "0.1", "0.3", "1"),
        WHITENING: ("{shrinkage=0.1}", "{shrinkage=0.5}", "{shrinkage=0.9}", "{kind='swbn'}"),
        CONFIDENCE: ("0.5", "0.8", "0.95"),
        WEIGHT: ("0.3", "1.0", "3.0", "10.0"),
    },
    start={PENALTY: "0.1", WHITENING: "{shrinkage=0.5}", CONFIDENCE: "0.8", WEIGHT: "1.0"},
    ladders={PENALTY: PENALTIES},
)

ALONE = "method.name=non-cooperative"
WITHOUT_DISTILLATION = 'method={name="sheaf-frl", exchange_every=8, quantisation="int8"}'
CONSENSUS, READING_HEADS = "consensus distillation", "trained alone, reading heads"
"""With the defaults, and with a confidence that nothing exceeds; no option is chosen."""
ABLATION = {
    "consensus by the own head": "consensus_head=false",
    "consensus, no reading head": "reading_head=false",
    "consensus, one reading head for all senders": "sender_offsets=false",
    "consensus, plain mean": "sharpness=0.0",
    "consensus, not calibrated": "calibrate=false",
    "consensus, confidence 0": "confidence=0.0",
    "consensus, confidence 0.5": "confidence=0.5",
}
"""Consensus distillation with one thing changed."""
Entries = dict[str, tuple[Overrides, tuple[str, ...]]]
ENTRIES: Entries = {
    "non-cooperative": ((ALONE,), ()),
    "Sheaf-FMTL": (("method.name=sheaf-fmtl",), (PENALTY,)),
    "ComFed": (("method.name=comfed",), (PENALTY,)),
    "FedProto": (("method.name=fedproto",), (PENALTY,)),
    "FedMuscle": (("method.name=fedmuscle",), (PENALTY,)),
    "Sheaf-FRL": ((WITHOUT_DISTILLATION,), (PENALTY, WHITENING)),
    "Sheaf-FRL with distillation": (
        ("method.name=sheaf-frl",),
        (PENALTY, WHITENING, CONFIDENCE, WEIGHT),
    ),
    CONSENSUS: (("method.name=consensus-distillation",), ()),
    READING_HEADS: (('method={name="consensus-distillation", confidence=1.0}',), ()),
    **{
        name: ((f'method={{name="consensus-distillation", {keys}}}',), ())
        for name, keys in ABLATION.items()
    },
    "control: labelled pilots": ((ALONE, "data.control=labelled-pilots"), ()),
    "control: pooled data": ((ALONE, "data.control=pooled"), ()),
}
"""The rows of a table: what each runs, and which options are chosen for it."""
NEED_ONE_LATENT_SIZE = {"FedProto", "FedMuscle"}
CASES = ("preset", "equal-latents")
COLUMNS = {
    "private": "private_accuracy",
    "communication": "fair",
    "as in paper": "as_in_paper",
    "oracle encoder": "oracle_accuracy",
}
HEADINGS = ("method", *COLUMNS, "MiB", "chosen")


def parser_of(description: str, epochs: int, entries: Entries = ENTRIES) -> argparse.ArgumentParser:
    """Return the options that all tables have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=CASES, default="preset")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0 on")
    parser.add_argument("--choice-seeds", default="0,1", help="that choose options, by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=epochs, help="as in the preset")
    usual = [name for name in entries if name not in ABLATION]
    parser.add_argument("--only", nargs="+", choices=entries, default=usual)
    return parser


def settings_of(given: argparse.Namespace, preset: str, size: int) -> Overrides:
    """Return the overrides of all runs; in the case of equal latents, they have this size."""
    settings = (f"training.epochs={given.epochs}", f"training.evaluate_every={given.epochs}")
    equal = equal_latents(read_experiment(preset), size) if given.case == "equal-latents" else ()
    return (*settings, *equal)


def equal_latents(experiment: Experiment, size: int) -> Overrides:
    """Return the agents of an experiment with one latent size, as an override."""
    pretrained = {agent.name: agent.pretrained for agent in experiment.model.agents}
    agents = []
    for name, spec in agent_specs(experiment, classes=10).items():
        keys = {
            "name": name,
            "encoder": spec.kind,
            "widths": [*spec.encoder[:-1], size],
            "head": spec.head,
            "dropout": spec.dropout,
            "target_classes": spec.target_classes,
        }
        if pretrained.get(name):
            keys["pretrained"] = pretrained[name]
        agents.append("{" + ", ".join(f"{k}={json.dumps(v)}" for k, v in keys.items()) + "}")
    return (f"model.agents=[{', '.join(agents)}]",)


def rows_of(
    runner: Runner,
    given: argparse.Namespace,
    entries: Entries = ENTRIES,
    grid: Grid = GRID,
    condition: Overrides = (),
    choose_under: Overrides | None = None,
) -> list[list[str]]:
    """Choose the options of every method, run all seeds with them, and return the rows.

    Args:
        runner: of the preset.
        given: the options of the command line.
        entries: the rows.
        grid: what options are chosen from.
        condition: what all methods have in common, e.g. the label shift.
        choose_under: the condition under which options are chosen, by default the same.
    """
    rows, seeds = [], range(given.seeds)
    choice_seeds = [int(seed) for seed in given.choice_seeds.split(",")]
    for name in given.only:
        if given.case == "preset" and name in NEED_ONE_LATENT_SIZE:
            continue
        print(f"\n{' '.join((*condition, name))}", flush=True)
        variant, options = entries[name]
        first = (*(condition if choose_under is None else choose_under), *variant)
        variant = (*condition, *variant)
        chosen = choose(runner, first, options, choice_seeds, grid)
        if given.case == "preset" and not is_as_in_preset(runner.config, variant, chosen):
            print(f"{name}: the preset has other options than {' '.join(chosen)}")
        trials = [Trial(variant, chosen, seed) for seed in seeds]
        runner.check(trials)
        runner.run(trials)
        rows.append(as_row(name, trials, runner.out))
    return rows


def choose(
    runner: Runner,
    variant: Overrides,
    options: Sequence[str],
    seeds: Sequence[int],
    grid: Grid = GRID,
) -> Overrides:
    """Return the values that the validation score chooses, one option after the other."""
    chosen = {option: grid.start[option] for option in options}
    for option in options:
        scores: dict[str, float] = {}
        tried: Sequence[str] = grid.candidates[option]
        while missing := [value for value in tried if value not in scores]:
            sets = {value: as_overrides(chosen | {option: value}) for value in missing}
            trials = [Trial(variant, c, seed) for c in sets.values() for seed in seeds]
            runner.check(trials)
            runner.run(trials, option)
            scores |= {v: score(runner.out, variant, c, seeds) for v, c in sets.items()}
            chosen[option] = max(scores, key=lambda value: scores[value])
            tried = widened(tried, chosen[option], grid.ladders.get(option, tried))
        print(f"{option}: " + ", ".join(f"{v} scores {s:.4f}" for v, s in scores.items()))
    return as_overrides(chosen)


def widened(tried: Sequence[str], best: str, ladder: Sequence[str]) -> Sequence[str]:
    """Return the values tried, and the next of the ladder if the best is at their end.

    >>> widened(["0.1", "1"], "1", ["0.01", "0.1", "1", "10"])
    ['0.1', '1', '10']
    """
    first, last = ladder.index(tried[0]), ladder.index(tried[-1])
    first -= best == tried[0] and first > 0
    last += best == tried[-1]
    return ladder[first : last + 1]


def as_overrides(values: Mapping[str, str]) -> Overrides:
    return tuple(f"{option}={value}" for option, value in values.items())


def is_as_in_preset(preset: str, variant: Overrides, chosen: Overrides) -> bool:
    """Whether a variant that is the preset itself has the options chosen for it there."""
    own = read_experiment(preset)
    if read_experiment(preset, variant) != own:
        return True
    return read_experiment(preset, (*variant, *chosen)) == own


def score(out: Path, variant: Overrides, candidate: Overrides, seeds: Sequence[int]) -> float:
    """Return the mean validation score; one that diverged is worse than any other."""
    trials = [Trial(variant, candidate, seed) for seed in seeds]
    if not all(is_finished(trial, out) for trial in trials):
        return float("-inf")
    return fmean(validation_score(trial, out, fair=True) for trial in trials)


def as_row(name: str, trials: Sequence[Trial], out: Path) -> list[str]:
    failed = [trial.seed for trial in trials if not is_finished(trial, out)]
    if failed:
        return [name, f"seeds {failed} failed", *["-"] * len(COLUMNS), ""]
    row = average(trials[0].variant, trials, out)
    figures = [with_deviation(row.mean[key], row.deviation[key]) for key in COLUMNS.values()]
    chosen = (override.partition("=") for override in trials[0].candidate)
    values = [f"{key.rpartition('.')[2]} {value}" for key, _, value in chosen]
    return [
        name,
        *figures,
        f"{(row.mean['bytes_sent'] or 0) / 2**20:.1f}",
        ", ".join(values) or "-",
    ]
