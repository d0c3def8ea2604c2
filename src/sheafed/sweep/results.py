"""What came out of a sweep: validation data choose, seeds are averaged, test data are shown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheafed.checkpointing.run_directory import METRICS, SUMMARY
from sheafed.errors import DataFormatError, SweepError
from sheafed.sweep.trials import Overrides, Trial

FIGURES = (
    "private_accuracy",
    "communication_accuracy",
    "communication_accuracy_degree_weighted",
    "oracle_accuracy",
    "misalignment",
    "bytes_sent",
    "as_in_paper",
    "as_in_paper_degree_weighted",
    "oracle_accuracy_degree_weighted",
)
"""What a table can show. `as_in_paper` are communication accuracies of methods that are aligned
after training, with their whitening fitted on private data, and missing for the others."""


@dataclass(frozen=True)
class Row:
    """A variant's figures over its seeds."""

    variant: Overrides
    chosen: tuple[Overrides, ...]
    """The candidate that validation chose for each seed."""
    seeds: int
    mean: Mapping[str, float | None]
    deviation: Mapping[str, float | None]


def is_done(trial: Trial, out: Path) -> bool:
    """Whether a trial has run to its end."""
    return (out / trial.directory / SUMMARY).exists()


def best(trials: Sequence[Trial], out: Path) -> Trial | None:
    """Return the finished trial with the best validation score, if any has finished.

    A candidate that did not finish, e.g. because it diverged, cannot be chosen.
    """
    done = [trial for trial in trials if is_done(trial, out)]
    return max(done, key=lambda t: validation_score(t, out), default=None)


def tabulate(trials: Sequence[Trial], out: Path) -> list[Row]:
    """Read the finished runs, let validation choose per variant and seed, average over seeds."""
    table = []
    for variant in dict.fromkeys(trial.variant for trial in trials):
        own = [t for t in trials if t.variant == variant]
        kept = []
        for seed in dict.fromkeys(t.seed for t in own):
            chosen = best([t for t in own if t.seed == seed], out)
            if chosen is None:
                raise SweepError(
                    f"no run of {' '.join(variant) or 'the config'} with seed {seed} has finished"
                )
            kept.append(chosen)
        table.append(average(variant, kept, out))
    return table


def average(variant: Overrides, trials: Sequence[Trial], out: Path) -> Row:
    """Return the figures of some finished trials, one per seed, as a row."""
    summaries = [read_summary(trial, out) for trial in trials]
    found = {key: [_figure(summary, key) for summary in summaries] for key in FIGURES}
    columns = {key: [v for v in values if v is not None] for key, values in found.items()}
    return Row(
        variant=variant,
        chosen=tuple(t.candidate for t in trials),
        seeds=len(trials),
        mean={k: statistics.fmean(v) if v else None for k, v in columns.items()},
        deviation={k: statistics.stdev(v) if len(v) > 1 else None for k, v in columns.items()},
    )


def validation_score(trial: Trial, out: Path) -> float:
    """Return the mean of private and communication accuracy on validation data."""
    path = out / trial.directory / METRICS
    lines = path.read_text().splitlines()
    score = json.loads(lines[-1]).get("validation_score") if lines else None
    if score is None and trial.candidate:
        raise DataFormatError(
            f"{path} has no validation score to choose by; give the agents validation data"
        )
    return float(score or 0.0)


def read_summary(trial: Trial, out: Path) -> dict[str, Any]:
    """Return what a finished trial has written at its end."""
    path = out / trial.directory / SUMMARY
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        raise DataFormatError(f"cannot read {path}: {problem}; run the sweep again") from problem
    return content


def as_csv(table: Sequence[Row]) -> str:
    """Return the table with a mean and a standard deviation per figure."""
    heads = [f"{key}{suffix}" for key in FIGURES for suffix in ("", "_sd")]
    lines = [",".join(["variant", "chosen", "seeds", *heads])]
    for row in table:
        chosen = " | ".join(" ".join(c) for c in row.chosen if c)
        cells = ['"' + " ".join(row.variant) + '"', f'"{chosen}"', str(row.seeds)]
        for key in FIGURES:
            cells += ["" if v is None else repr(v) for v in (row.mean[key], row.deviation[key])]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def as_markdown(table: Sequence[Row]) -> str:
    """Return the accuracies as a table for people."""
    keys = (*FIGURES[:5], "as_in_paper")
    lines = [
        "| variant | " + " | ".join(key.replace("_", " ") for key in keys) + " | MiB sent |",
        "|---" * (len(keys) + 2) + "|",
    ]
    for row in table:
        cells = [with_deviation(row.mean[key], row.deviation[key]) for key in keys]
        sent = (row.mean["bytes_sent"] or 0) / 2**20
        name = " ".join(row.variant) or "the config"
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {sent:.1f} |")
    return "\n".join(lines) + "\n"


def with_deviation(mean: float | None, deviation: float | None) -> str:
    """Return a mean and its standard deviation as people write them."""
    if mean is None:
        return "-"
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def _figure(summary: Mapping[str, Any], key: str) -> float | None:
    if key.startswith("as_in_paper"):
        private = summary.get("whitenings", {}).get("as-in-paper", {})
        return private.get(key.replace("as_in_paper", "communication_accuracy"))  # type: ignore[no-any-return]
    if key == "oracle_accuracy_degree_weighted":
        edges = [
            edge["oracle_accuracy"]
            for edge in summary["edges"]
            if edge["oracle_accuracy"] is not None
        ]
        return statistics.fmean(edges) if edges else None
    value: float | None = summary[key]
    return value
