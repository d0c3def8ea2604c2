"""The paper's agents and data at full size: the source of the tables at full size.

    python benchmarks/full_size.py pair-half-0.7 pair-half-0.9 --out out/full
    python benchmarks/full_size.py fifteen-0.7 --only "Sheaf-FRL" --seeds 0,1,2 --out out/full
    python benchmarks/full_size.py --show

Takes from minutes (the pair with half of the data) to many hours (the fifteen agents, an hour of
CPU for a run) on two cores; an interrupted command continues where it stopped. Figures of runs that
have finished are kept in full_size.json beside this file, and such runs are not repeated: remove
the records of a method whose defaults have changed.

Penalties are those that the validation score chose in `sheafed reproduce bottleneck` (quick), and
the default for the fifteen agents and for the pair at d = 128, which it does not have. Consensus
distillation has its defaults everywhere.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from sheafed.sweep import (
    Overrides,
    Runner,
    Trial,
    is_finished,
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


FIGURES = {
    "private": "private_accuracy",
    "communication, fair": "fair",
    "as in paper": "as_in_paper",
    "oracle encoder": "oracle_accuracy",
}
KEPT = Path(__file__).with_suffix(".json")


class Record(NamedTuple):
    """What one run came to."""

    case: str
    method: str
    seed: int
    settings: list[str]
    figures: dict[str, float | None]
    """By column of the tables."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"to run: {', '.join(CASES)}")
    parser.add_argument("--out", type=Path, help="for the runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", nargs="+", choices=methods(), default=list(methods()))
    parser.add_argument("--show", action="store_true", help="all tables, of what has run")
    given = parser.parse_args()
    if unknown := set(given.cases) - CASES.keys():
        parser.error(f"unknown case {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}")
    if given.cases and given.out is None:
        parser.error("--out is missing: a directory for the runs")
    if not (given.cases or given.show):
        parser.error(f"nothing to do; give --show, or some of {', '.join(CASES)}")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    for name in given.cases:
        run(name, given.only, seeds, given.out / name, given.jobs)
    for name in CASES if given.show else given.cases:
        if text := as_markdown(CASES[name], [r for r in read_records() if r.case == name]):
            print(f"{name}\n\n{text}")


def run(name: str, rows: list[str], seeds: list[int], out: Path, jobs: int) -> None:
    """Run what is missing of a case, and keep the figures of each run."""
    case = CASES[name]
    kept = {(record.method, record.seed) for record in read_records() if record.case == name}
    missing = {
        Trial(case.methods[row], (), seed): row
        for row in rows
        for seed in seeds
        if (row, seed) not in kept
    }
    with Runner(case.config, case.settings, out, jobs) as runner:
        runner.check(missing)
        runner.run(missing)
    finished = {trial: row for trial, row in missing.items() if is_finished(trial, out)}
    for trial, row in finished.items():
        mean = tabulate([trial], out)[0].mean
        suffix = "_degree_weighted" if case.degree_weighted else ""
        figures = {
            column: mean[key if key == "private_accuracy" else key + suffix]
            for column, key in FIGURES.items()
        }
        settings = [*case.settings, *trial.variant]
        write_records([*read_records(), Record(name, row, trial.seed, settings, figures)])
    if len(finished) < len(missing):
        raise SystemExit(f"{name}: some runs failed, see failure.txt in {out}")


def read_records() -> list[Record]:
    """Return all records; raise on one whose settings are no longer those of its case."""
    records = [Record(**entry) for entry in json.loads(KEPT.read_text())] if KEPT.exists() else []
    for record in records:
        case = CASES[record.case]
        if record.settings != [*case.settings, *case.methods[record.method]]:
            raise SystemExit(
                f"{KEPT.name}: {record.case}, {record.method}, seed {record.seed} was run with "
                f"other settings, {' '.join(record.settings)}; remove it, and run it again"
            )
    return records


def write_records(records: Sequence[Record]) -> None:
    """Write one record a line, in an order of their own, so that additions merge."""
    lines = [json.dumps(record._asdict()) for record in sorted(records, key=lambda r: r[:3])]
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def as_markdown(case: Case, records: Sequence[Record]) -> str:
    """Return means over seeds, with deviations; an empty text without records."""
    cells = []
    for name in case.methods:
        own = [record for record in records if record.method == name]
        found = [[record.figures[column] for record in own] for column in FIGURES]
        if own:
            seeds = ", ".join(str(record.seed) for record in own)
            cells.append([name, seeds, *map(mean_and_deviation, found)])
    return markdown_table(["method", "seeds", *FIGURES], cells) if cells else ""


def mean_and_deviation(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return with_deviation(fmean(known), stdev(known) if len(known) > 1 else None)


if __name__ == "__main__":
    main()
