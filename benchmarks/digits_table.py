"""Every method and two controls on the preset `digits`: the source of the tables for digits.

    python benchmarks/digits_table.py --seeds 5 --out out/digits

The options of each method are chosen by the validation score, the mean of private and
communication accuracy on validation data, over the first `--choice-seeds` seeds; the chosen ones
then run with all seeds. Options are chosen one after the other, in the order of `CANDIDATES`. A
penalty at the end of those tried is not accepted before the next one is worse. Methods that are
aligned after training choose the shrinkage of their maps in every run, by validation data. An
interrupted command continues where it stopped. The preset has the options that this command chose;
it prints a line if it now chooses others.

FedProto and FedMuscle need one latent size: `--case equal-latents` gives the five agents 32
dimensions each, and runs all methods.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from sheafed.config import read_experiment
from sheafed.config.agents import agent_specs
from sheafed.sweep import Overrides, Runner, Trial, markdown_table, with_deviation
from sheafed.sweep.results import average, is_finished, validation_score

PENALTY = "method.penalty"
WHITENING = "method.whitening"
CONFIDENCE = "method.distillation.confidence"
WEIGHT = "method.distillation.weight"
CANDIDATES = {
    PENALTY: ("0.03", "0.1", "0.3", "1"),
    WHITENING: ("{shrinkage=0.1}", "{shrinkage=0.5}", "{shrinkage=0.9}", "{kind='swbn'}"),
    CONFIDENCE: ("0.5", "0.8", "0.95"),
    WEIGHT: ("0.3", "1.0", "3.0", "10.0"),
}
START = {
    PENALTY: "0.1",
    WHITENING: "{shrinkage=0.5}",
    CONFIDENCE: "0.8",
    WEIGHT: "1.0",
}
"""The values of options that are not chosen yet."""
ALL_PENALTIES = ("0.001", "0.003", "0.01", *CANDIDATES[PENALTY], "3", "10", "30", "100", "300")

ALONE = "method.name=non-cooperative"
WITHOUT_DISTILLATION = 'method={name="sheaf-frl", exchange_every=8, quantisation="int8"}'
ENTRIES: dict[str, tuple[Overrides, tuple[str, ...]]] = {
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
    "control: labelled pilots": ((ALONE, "data.control=labelled-pilots"), ()),
    "control: pooled data": ((ALONE, "data.control=pooled"), ()),
}
"""The rows of a table: what each runs, and which options are chosen for it."""
NEED_ONE_LATENT_SIZE = {"FedProto", "FedMuscle"}
COLUMNS = {
    "private": "private_accuracy",
    "communication": "fair",
    "as in paper": "as_in_paper",
    "oracle encoder": "oracle_accuracy",
}


def equal_latents(size: int = 32) -> Overrides:
    """Return the agents of the preset with one latent size, as an override."""
    agents = [
        f'{{name="{name}", encoder="{spec.kind}", widths={[*spec.encoder[:-1], size]}, '
        f"head={list(spec.head)}, dropout={spec.dropout}, "
        f"target_classes={list(spec.target_classes)}}}"
        for name, spec in agent_specs(read_experiment("digits"), classes=10).items()
    ]
    return (f"model.agents=[{', '.join(agents)}]",)


def choose(
    runner: Runner, variant: Overrides, options: Sequence[str], seeds: Sequence[int]
) -> Overrides:
    """Return the values that the validation score chooses, one option after the other."""
    chosen = {option: START[option] for option in options}
    for option in options:
        scores: dict[str, float] = {}
        tried: Sequence[str] = CANDIDATES[option]
        while missing := [value for value in tried if value not in scores]:
            sets = {value: as_overrides(chosen | {option: value}) for value in missing}
            trials = [Trial(variant, c, seed) for c in sets.values() for seed in seeds]
            runner.check(trials)
            runner.run(trials, option)
            scores |= {v: score(runner.out, variant, c, seeds) for v, c in sets.items()}
            chosen[option] = max(scores, key=lambda value: scores[value])
            tried = widened(tried, chosen[option]) if option == PENALTY else tried
        print(f"{option}: " + ", ".join(f"{v} scores {s:.4f}" for v, s in scores.items()))
    return as_overrides(chosen)


def widened(tried: Sequence[str], best: str) -> Sequence[str]:
    """Return the penalties tried, and one more beyond the best if it is at their end."""
    first, last = ALL_PENALTIES.index(tried[0]), ALL_PENALTIES.index(tried[-1])
    first -= best == tried[0] and first > 0
    last += best == tried[-1]
    return ALL_PENALTIES[first : last + 1]


def as_overrides(values: dict[str, str]) -> Overrides:
    return tuple(f"{option}={value}" for option, value in values.items())


def is_as_in_preset(variant: Overrides, chosen: Overrides) -> bool:
    """Whether Sheaf-FRL has the options chosen for it in the preset; of others it says nothing."""
    method, preset = (read_experiment("digits", o).method for o in ((*variant, *chosen), ()))
    return method.label != preset.label or method == preset


def score(out: Path, variant: Overrides, candidate: Overrides, seeds: Sequence[int]) -> float:
    """Return the mean validation score; one that diverged is worse than any other."""
    trials = [Trial(variant, candidate, seed) for seed in seeds]
    if not all(is_finished(trial, out) for trial in trials):
        return float("-inf")
    return fmean(validation_score(trial, out) for trial in trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=("preset", "equal-latents"), default="preset")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0 on")
    parser.add_argument("--choice-seeds", type=int, default=2, help="how many of them choose")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=60, help="as in the preset")
    parser.add_argument("--only", nargs="+", choices=ENTRIES, default=list(ENTRIES))
    given = parser.parse_args()
    settings: Overrides = (
        f"training.epochs={given.epochs}",
        f"training.evaluate_every={given.epochs}",
    )
    if given.case == "equal-latents":
        settings += equal_latents()
    rows, seeds = [], range(given.seeds)
    with Runner("digits", settings, given.out / given.case, given.jobs) as runner:
        for name in given.only:
            if given.case == "preset" and name in NEED_ONE_LATENT_SIZE:
                continue
            print(f"\n{name}", flush=True)
            variant, options = ENTRIES[name]
            chosen = choose(runner, variant, options, seeds[: given.choice_seeds])
            if given.case == "preset" and not is_as_in_preset(variant, chosen):
                print(f"{name}: the preset has other options than {' '.join(chosen)}")
            trials = [Trial(variant, chosen, seed) for seed in seeds]
            runner.check(trials)
            runner.run(trials)
            rows.append(as_row(name, trials, runner.out))
    text = markdown_table(["method", *COLUMNS, "MiB", "chosen"], rows)
    (given.out / f"{given.case}.md").write_text(text)
    print(f"\n{text}")


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


if __name__ == "__main__":
    main()
