"""The paper's agents and data at full size: the source of the tables at full size.

    python benchmarks/full_size.py fifteen pair-64 pair-16 --out out/full

Takes hours on two cores; an interrupted command continues where it stopped. Penalties are those
that the validation score chose in `sheafed reproduce bottleneck` (quick), and the default for the
fifteen agents.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from sheafed.sweep import (
    Overrides,
    Row,
    Runner,
    Trial,
    markdown_table,
    tabulate,
    with_deviation,
)


@dataclass(frozen=True)
class Case:
    """Some methods on one network."""

    config: str
    settings: Overrides
    methods: dict[str, Overrides]
    seeds: tuple[int, ...] = (0, 1, 2)
    degree_weighted: bool = False


def method(name: str, penalty: str | None = None, *more: str) -> Overrides:
    chosen = () if penalty is None else (f"method.penalty={penalty}",)
    return (f"method.name={name}", *more, *chosen)


DISTILLATION = "method.distillation={}"
CASES = {
    "fifteen": Case(
        "fifteen",
        ("training.epochs=30", "training.evaluate_every=10"),
        {
            "non-cooperative": method("non-cooperative"),
            "Sheaf-FRL": method("sheaf-frl"),
            "Sheaf-FRL with distillation": method("sheaf-frl", None, DISTILLATION),
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
            "non-cooperative": method("non-cooperative"),
            "Sheaf-FMTL": method("sheaf-fmtl", "1e-3"),
            "ComFed": method("comfed", "1e-2", "method.projection=64"),
            "FedProto": method("fedproto", "1e-1"),
            "FedMuscle": method("fedmuscle", "1e-3"),
            "Sheaf-FRL": method("sheaf-frl", "1e-2"),
            "Sheaf-FRL with distillation": method("sheaf-frl", "1e-1", DISTILLATION),
        },
    ),
    "pair-16": Case(
        "pair",
        ("model.bottleneck=16", "training.epochs=20", "training.evaluate_every=20"),
        {
            "non-cooperative": method("non-cooperative"),
            "Sheaf-FRL": method("sheaf-frl", "1e-1"),
            "Sheaf-FRL with distillation": method("sheaf-frl", "1e-3", DISTILLATION),
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
        trials = [Trial(m, (), seed) for m in case.methods.values() for seed in case.seeds]
        with Runner(case.config, case.settings, given.out / name, given.jobs) as runner:
            runner.check(trials)
            runner.run(trials)
        text = as_markdown(case, tabulate(trials, given.out / name))
        (given.out / f"{name}.md").write_text(text)
        print(f"{name}\n\n{text}")


def as_markdown(case: Case, table: list[Row]) -> str:
    suffix = "_degree_weighted" if case.degree_weighted else ""
    columns = {
        "private": "private_accuracy",
        "communication, fair": f"fair{suffix}",
        "as in paper": f"as_in_paper{suffix}",
        "oracle encoder": f"oracle_accuracy{suffix}",
    }
    rows = [
        [name, *(with_deviation(row.mean[key], row.deviation[key]) for key in columns.values())]
        for name, row in zip(case.methods, table, strict=True)
    ]
    return markdown_table(["method", *columns], rows)


if __name__ == "__main__":
    main()
