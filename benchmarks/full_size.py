"""The paper's agents and data at full size: the source of the tables at full size.

    python benchmarks/full_size.py pair-half-0.7 pair-half-0.9 --out out/full
    python benchmarks/full_size.py fifteen-0.7 --only "consensus distillation" --out out/full

Takes from minutes (the pair with half of the data) to many hours (the fifteen agents, an hour of
CPU for a run) on two cores; an interrupted command continues where it stopped. Penalties are those
that the validation score chose in `sheafed reproduce bottleneck` (quick), and the default for the
fifteen agents and for the pair at d = 128, which it does not have. Consensus distillation has its
defaults everywhere.
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
    degree_weighted: bool = False


def method(name: str, *more: str) -> Overrides:
    return (f"method.name={name}", *more)


def methods(sheaf_frl: str | None = None, distillation: str | None = None) -> dict[str, Overrides]:
    """Return the rows of a table.

    Args:
        sheaf_frl: the penalty of Sheaf-FRL, by default that of the method.
        distillation: the same with distillation.
    """

    def penalty(value: str | None) -> Overrides:
        return () if value is None else (f"method.penalty={value}",)

    return {
        "non-cooperative": method("non-cooperative"),
        "Sheaf-FRL": method("sheaf-frl", *penalty(sheaf_frl)),
        "Sheaf-FRL with distillation": method(
            "sheaf-frl", "method.distillation={}", *penalty(distillation)
        ),
        "consensus distillation": method("consensus-distillation"),
    }


def fifteen(shift: str) -> Case:
    settings = (f"data.shift={shift}", "training.epochs=30", "training.evaluate_every=10")
    return Case("fifteen", settings, methods(), degree_weighted=True)


def pair(d: int, share: float, epochs: int, shift: str, *penalties: str) -> Case:
    settings = (
        f"model.bottleneck={d}",
        f"data.train_fraction={share}",
        f"data.shift={shift}",
        f"training.epochs={epochs}",
        f"training.evaluate_every={epochs}",
    )
    return Case("pair", settings, methods(*penalties))


CASES = {
    **{f"fifteen-{shift}": fifteen(shift) for shift in ("0.7", "0.9")},
    **{f"pair-half-{shift}": pair(64, 0.5, 10, shift, "0.1", "0.1") for shift in ("0.7", "0.9")},
    "pair-16": pair(16, 1, 20, "0.7", "1", "0.01"),
    "pair-32": pair(32, 1, 20, "0.7", "0.1", "0.1"),
    "pair-64": pair(64, 1, 20, "0.7", "0.1", "0.1"),
    "pair-128": pair(128, 1, 20, "0.7"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", nargs="+", choices=methods(), default=list(methods()))
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    for name in given.cases:
        case = CASES[name]
        trials = [Trial(case.methods[row], (), seed) for row in given.only for seed in seeds]
        with Runner(case.config, case.settings, given.out / name, given.jobs) as runner:
            runner.check(trials)
            runner.run(trials)
        text = as_markdown(case, given.only, tabulate(trials, given.out / name))
        (given.out / f"{name}.md").write_text(text)
        print(f"{name}\n\n{text}")


def as_markdown(case: Case, rows: list[str], table: list[Row]) -> str:
    suffix = "_degree_weighted" if case.degree_weighted else ""
    columns = {
        "private": "private_accuracy",
        "communication, fair": f"fair{suffix}",
        "as in paper": f"as_in_paper{suffix}",
        "oracle encoder": f"oracle_accuracy{suffix}",
    }
    cells = [
        [name, *(with_deviation(row.mean[key], row.deviation[key]) for key in columns.values())]
        for name, row in zip(rows, table, strict=True)
    ]
    return markdown_table(["method", *columns], cells)


if __name__ == "__main__":
    main()
