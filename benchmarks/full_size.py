"""The paper's agents and data at full size: what the README's tables at full size come from.

    python benchmarks/full_size.py network pair-64 pair-16 --out out/full

Hours on two cores; goes on where it was interrupted. Penalties are those that validation data
chose in `sheafed reproduce bottleneck` (quick), and the default for the network.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from sheafed.sweep.results import Row, tabulate, with_deviation
from sheafed.sweep.runner import Runner
from sheafed.sweep.trials import Overrides, Trial


@dataclass(frozen=True)
class Case:
    """Some methods on one network."""

    config: str
    settings: Overrides
    methods: dict[str, Overrides]
    seeds: tuple[int, ...] = (0, 1, 2)
    degree_weighted: bool = False


def way(name: str, penalty: str | None = None, *more: str) -> Overrides:
    chosen = () if penalty is None else (f"method.penalty={penalty}",)
    return (f"method.name={name}", *more, *chosen)


BELIEFS = "method.distillation={}"
CASES = {
    "fifteen": Case(
        "fifteen",
        ("training.epochs=30", "training.evaluate_every=10"),
        {
            "non-cooperative": way("non-cooperative"),
            "Sheaf-FRL": way("sheaf-frl"),
            "Sheaf-FRL with distillation": way("sheaf-frl", None, BELIEFS),
        },
        seeds=(0,),
        degree_weighted=True,
    ),
    "pair-64": Case(
        "pair",
        (
            "model.bottleneck=64",
            "data.train_fraction=0.5",
            "training.epochs=10",
            "training.evaluate_every=10",
        ),
        {
            "non-cooperative": way("non-cooperative"),
            "Sheaf-FMTL": way("sheaf-fmtl", "1e-3"),
            "ComFed": way("comfed", "1e-2", "method.projection=64"),
            "FedProto": way("fedproto", "1e-1"),
            "FedMuscle": way("fedmuscle", "1e-3"),
            "Sheaf-FRL": way("sheaf-frl", "1e-2"),
            "Sheaf-FRL with distillation": way("sheaf-frl", "1e-1", BELIEFS),
        },
    ),
    "pair-16": Case(
        "pair",
        ("model.bottleneck=16", "training.epochs=20", "training.evaluate_every=20"),
        {
            "non-cooperative": way("non-cooperative"),
            "Sheaf-FRL": way("sheaf-frl", "1e-1"),
            "Sheaf-FRL with distillation": way("sheaf-frl", "1e-3", BELIEFS),
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    for name in given.cases:
        case = CASES[name]
        trials = [Trial(way, (), seed) for way in case.methods.values() for seed in case.seeds]
        with Runner(case.config, case.settings, given.out / name, given.jobs) as runner:
            for trial in trials:
                runner.check(trial)
            runner.run(trials)
        text = as_markdown(case, tabulate(trials, given.out / name))
        (given.out / f"{name}.md").write_text(text)
        print(f"{name}\n\n{text}")


def as_markdown(case: Case, table: list[Row]) -> str:
    suffix = "_degree_weighted" if case.degree_weighted else ""
    columns = {
        "private": "private_accuracy",
        "communication, fair": f"communication_accuracy{suffix}",
        "as in paper": f"as_in_paper{suffix}",
        "oracle_accuracy": f"oracle_accuracy{suffix}",
    }
    lines = [f"| method | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name, row in zip(case.methods, table, strict=True):
        cells = [with_deviation(row.mean[key], row.deviation[key]) for key in columns.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
