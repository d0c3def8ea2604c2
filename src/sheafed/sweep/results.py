"""Results of a sweep: the validation score chooses, seeds are averaged, test data are shown."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheafed.checkpointing.run_directory import METRICS, SUMMARY
from sheafed.errors import DataFormatError, SweepError
from sheafed.metrics.metric import ACCURACY, metrics_of
from sheafed.sweep.tables import csv_table, markdown_table, with_deviation
from sheafed.sweep.trials import Overrides, Trial
from sheafed.training.scores import score as signed_mean


def columns(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return what a table of runs with some metrics can show.

    `as_in_paper` and `fair` are the communication values of a method that is aligned after
    training, with the whitenings of `sheafed.training.post_hoc_maps`. Of a method that learns its
    maps, the first is missing and the second is what it learnt.
    """
    return (
        *(key.format(metric) for metric in metrics for key in _OF_METRIC),
        *("misalignment", "bytes_sent", "as_in_paper", "as_in_paper_degree_weighted"),
        *(f"oracle_{metric}_degree_weighted" for metric in metrics),
        *("fair", "fair_degree_weighted"),
    )


_OF_METRIC = ("private_{}", "communication_{}", "communication_{}_degree_weighted", "oracle_{}")
COLUMNS = columns([ACCURACY.name])
"""What a table can show where the metric is accuracy."""


@dataclass(frozen=True)
class Row:
    """A variant's results over its seeds."""

    variant: Overrides
    chosen: tuple[Overrides, ...]
    """The candidate chosen for each seed."""
    seeds: int
    mean: Mapping[str, float | None]
    deviation: Mapping[str, float | None]


def is_finished(trial: Trial, out: Path) -> bool:
    return (out / trial.directory / SUMMARY).exists()


def best_trial(trials: Sequence[Trial], out: Path, *, fair: bool = False) -> Trial | None:
    """Return the finished trial with the best validation score, if any has finished.

    A candidate that did not finish, e.g. because it diverged, cannot be chosen.

    Args:
        trials: the candidates.
        out: contains their directories.
        fair: as `validation_score` has it.
    """
    finished = [trial for trial in trials if is_finished(trial, out)]
    return max(finished, key=lambda t: validation_score(t, out, fair=fair), default=None)


def tabulate(trials: Sequence[Trial], out: Path) -> list[Row]:
    """Choose one candidate per variant and seed by its validation score; average over seeds."""
    table = []
    for variant in dict.fromkeys(trial.variant for trial in trials):
        own = [t for t in trials if t.variant == variant]
        kept = []
        for seed in dict.fromkeys(t.seed for t in own):
            chosen = best_trial([t for t in own if t.seed == seed], out)
            if chosen is None:
                raise SweepError(
                    f"no run of {' '.join(variant) or 'the config'} with seed {seed} has finished"
                )
            kept.append(chosen)
        table.append(average(variant, kept, out))
    return table


def average(variant: Overrides, trials: Sequence[Trial], out: Path) -> Row:
    """Return the results of finished trials, one per seed, as a row."""
    summaries = [read_summary(trial, out) for trial in trials]
    shown = columns(list(dict.fromkeys(m for summary in summaries for m in metrics_of(summary))))
    found = {key: [_value(summary, key) for summary in summaries] for key in shown}
    known = {key: [v for v in values if v is not None] for key, values in found.items()}
    return Row(
        variant=variant,
        chosen=tuple(t.candidate for t in trials),
        seeds=len(trials),
        mean={k: statistics.fmean(v) if v else None for k, v in known.items()},
        deviation={k: statistics.stdev(v) if len(v) > 1 else None for k, v in known.items()},
    )


def validation_score(trial: Trial, out: Path, *, fair: bool = False) -> float:
    """Return the mean of private and communicated metrics on validation data; greater is better.

    Args:
        trial: that has finished.
        out: contains its directory.
        fair: whether communication of a method that is aligned after training is that of its fair
            whitening, as in the columns `fair`, not of the one that the trial was run with.
    """
    path = out / trial.directory / METRICS
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[-1]) if lines else {}
    score = record.get("validation_score")
    if fair and score is not None:
        score = _fair_score(record, read_summary(trial, out))
    if score is None and trial.candidate:
        raise DataFormatError(
            f"{path} has no validation score to choose by; give the agents validation data"
        )
    return float(score or 0.0)


def _fair_score(record: Mapping[str, Any], summary: Mapping[str, Any]) -> float | None:
    prefix = "validation_"
    measured = {k: v for k, v in _fair(summary).items() if k.startswith(prefix) and v is not None}
    if not measured:
        own: float | None = record["validation_score"]
        return own
    found = {**record, **measured}
    values = {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}
    return signed_mean(values, _signs(summary))


def read_summary(trial: Trial, out: Path) -> dict[str, Any]:
    """Return the `summary.json` of a finished trial."""
    path = out / trial.directory / SUMMARY
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as problem:
        raise DataFormatError(f"cannot read {path}: {problem}; run the sweep again") from problem
    return content


def as_csv(table: Sequence[Row]) -> str:
    """Return the table with a mean and a standard deviation per column."""
    shown = columns(_metrics(table))
    headings = ["variant", "chosen", "seeds"]
    headings += [f"{key}{suffix}" for key in shown for suffix in ("", "_sd")]
    return csv_table(
        headings,
        (
            [
                " ".join(row.variant),
                " | ".join(" ".join(candidate) for candidate in row.chosen if candidate),
                row.seeds,
                *(v for key in shown for v in (row.mean.get(key), row.deviation.get(key))),
            ]
            for row in table
        ),
    )


def as_markdown(table: Sequence[Row]) -> str:
    """Return what was chosen, if anything was, and the figures."""
    headings, cells = figures(table)
    labels = [[" ".join(row.variant) or "the config"] for row in table]
    first = ["variant"]
    if any(candidate for row in table for candidate in row.chosen):
        first.append("chosen (seeds)")
        labels = [[*label, chosen_values(r.chosen)] for label, r in zip(labels, table, strict=True)]
    rows = ([*label, *values] for label, values in zip(labels, cells, strict=True))
    return markdown_table([*first, *headings], rows)


def figures(table: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of the metrics, the misalignment and the MiB sent."""
    metrics = _metrics(table)
    keys = (*columns(metrics)[: len(_OF_METRIC) * len(metrics) + 1], "as_in_paper")
    cells = [
        [
            *(with_deviation(row.mean.get(key), row.deviation.get(key)) for key in keys),
            f"{(row.mean['bytes_sent'] or 0) / 2**20:.1f}",
        ]
        for row in table
    ]
    return [*(key.replace("_", " ") for key in keys), "MiB sent"], cells


def chosen_values(chosen: Sequence[Overrides]) -> str:
    """Return the candidates that were chosen, with the number of seeds of each.

    >>> chosen_values([("penalty=1",), ("penalty=3",), ("penalty=1",)])
    'penalty=1 (2), penalty=3 (1)'
    """
    counts = Counter(" ".join(candidate) for candidate in chosen if candidate)
    return ", ".join(f"{candidate} ({count})" for candidate, count in counts.items()) or "-"


def _metrics(table: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(metric for row in table for metric in metrics_of(row.mean)))


def _signs(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return, by metric, 1 if a greater value is better, else -1."""
    known = summary.get("metrics", {})
    greater = {m: known.get(m, {}).get("greater_is_better", True) for m in metrics_of(summary)}
    return {metric: 1 if better else -1 for metric, better in greater.items()}


def _value(summary: Mapping[str, Any], key: str) -> float | None:
    communication = f"communication_{metrics_of(summary)[0]}"
    if key.startswith("as_in_paper"):
        private = summary.get("whitenings", {}).get("as-in-paper", {})
        return private.get(key.replace("as_in_paper", communication))  # type: ignore[no-any-return]
    if key.startswith("fair"):
        key = key.replace("fair", communication)
        return _fair(summary).get(key, summary[key])  # type: ignore[no-any-return]
    if key.startswith("oracle_") and key.endswith("_degree_weighted"):
        oracle = [edge.get(key.removesuffix("_degree_weighted")) for edge in summary["edges"]]
        known = [value for value in oracle if value is not None]
        return statistics.fmean(known) if known else None
    value: float | None = summary.get(key)
    return value


def _fair(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was measured with a fair whitening; empty if maps are learnt in training."""
    fair: Mapping[str, Any] = summary.get("whitenings", {}).get("fair", {})
    return fair
