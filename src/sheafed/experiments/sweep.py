"""Many runs of one config: which there are, which are missing, and what came out.

A sweep is a grid of overrides times seeds. Every run has a directory of its own, so a sweep that
was interrupted goes on with what is missing. Where a value is to be *chosen*, e.g. the penalty,
each candidate is run and the one with the best validation score is kept, per variant and seed:
test data never choose.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from sheafed.errors import ConfigError, DataFormatError, SweepError

FIGURES = (
    "private_accuracy",
    "communication_accuracy",
    "communication_accuracy_degree_weighted",
    "communication_ceiling",
    "misalignment",
    "bytes_sent",
    "as_in_paper",
    "as_in_paper_degree_weighted",
)
"""What a table can show; the last two are communication accuracies of methods that are aligned
after training, with their whitening fitted on private data, and missing for the others."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    variant: tuple[str, ...]
    """Overrides that a row of the table stands for."""
    candidate: tuple[str, ...]
    """Overrides among which the validation score chooses."""
    seed: int

    @property
    def overrides(self) -> tuple[str, ...]:
        """All `table.key=value` of this run."""
        return (*self.variant, *self.candidate, f"seed={self.seed}")

    @property
    def directory(self) -> str:
        """A name that is readable and, by its digest, unique."""
        text = " ".join((*self.variant, *self.candidate))
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        words = "_".join(o.rpartition(".")[2] for o in (*self.variant, *self.candidate))
        safe = "".join(c if c.isalnum() or c in "=._-" else "-" for c in words)[:80]
        return f"{safe or 'config'}-{digest}/seed-{self.seed}"


@dataclass(frozen=True)
class Row:
    """A variant's figures over its seeds."""

    variant: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]
    """The candidate that validation chose for each seed."""
    seeds: int
    mean: Mapping[str, float | None]
    deviation: Mapping[str, float | None]


def plan(
    vary: Sequence[str], choose: Sequence[str], seeds: Sequence[int], variants: Sequence[str] = ()
) -> list[Trial]:
    """Return the trials of a grid.

    Args:
        vary: `table.key=a,b,c`: every combination is a variant.
        choose: `table.key=a,b,c`: every combination is a candidate.
        seeds: of each.
        variants: whole variants, several overrides joined by `;`, instead of a grid.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must be different numbers, at least one, got {list(seeds)}")
    rows = [tuple(o.strip() for o in v.split(";")) for v in variants] or [()]
    grid = list(product(*map(_values, vary)))
    candidates = list(product(*map(_values, choose)))
    return [
        Trial((*row, *point), candidate, seed)
        for row in rows
        for point in grid
        for candidate in candidates
        for seed in seeds
    ]


def is_done(trial: Trial, out: Path) -> bool:
    """Whether a trial has run to its end."""
    return (out / trial.directory / "summary.json").exists()


def tabulate(trials: Sequence[Trial], out: Path) -> list[Row]:
    """Read the finished runs, let validation choose, and average over seeds.

    A candidate that did not finish, e.g. because it diverged, cannot be chosen.
    """
    rows = []
    for variant in dict.fromkeys(trial.variant for trial in trials):
        own = [t for t in trials if t.variant == variant]
        kept = []
        for seed in dict.fromkeys(t.seed for t in own):
            done = [t for t in own if t.seed == seed and is_done(t, out)]
            if not done:
                raise SweepError(
                    f"no run of {' '.join(variant) or 'the config'} with seed {seed} has finished"
                )
            kept.append(max(done, key=lambda t: _validation(t, out)))
        summaries = [_read(out / t.directory / "summary.json") for t in kept]
        found = {key: [_figure(summary, key) for summary in summaries] for key in FIGURES}
        columns = {key: [v for v in values if v is not None] for key, values in found.items()}
        rows.append(
            Row(
                variant=variant,
                chosen=tuple(t.candidate for t in kept),
                seeds=len(kept),
                mean={k: statistics.fmean(v) if v else None for k, v in columns.items()},
                deviation={k: _deviation(v) for k, v in columns.items()},
            )
        )
    return rows


def as_csv(rows: Sequence[Row]) -> str:
    """Return the table with a mean and a standard deviation per figure."""
    heads = [f"{key}{suffix}" for key in FIGURES for suffix in ("", "_sd")]
    lines = [",".join(["variant", "chosen", "seeds", *heads])]
    for row in rows:
        chosen = " | ".join(" ".join(c) for c in row.chosen if c)
        cells = ['"' + " ".join(row.variant) + '"', f'"{chosen}"', str(row.seeds)]
        for key in FIGURES:
            cells += ["" if v is None else repr(v) for v in (row.mean[key], row.deviation[key])]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the accuracies as a table for people."""
    keys = (*FIGURES[:5], "as_in_paper")
    lines = [
        "| variant | " + " | ".join(key.replace("_", " ") for key in keys) + " | MiB sent |",
        "|---" * (len(keys) + 2) + "|",
    ]
    for row in rows:
        cells = [_with_deviation(row.mean[key], row.deviation[key]) for key in keys]
        sent = (row.mean["bytes_sent"] or 0) / 2**20
        name = " ".join(row.variant) or "the config"
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {sent:.1f} |")
    return "\n".join(lines) + "\n"


def _values(option: str) -> list[str]:
    key, separator, values = option.partition("=")
    listed = [v.strip() for v in values.split(",")]
    if not separator or not key.strip() or not all(listed):
        raise ConfigError(f"expected values like data.shift=0.3,0.7, got {option!r}")
    return [f"{key.strip()}={value}" for value in listed]


def _validation(trial: Trial, out: Path) -> float:
    path = out / trial.directory / "metrics.jsonl"
    lines = path.read_text().splitlines()
    score = json.loads(lines[-1]).get("validation_score") if lines else None
    if score is None and trial.candidate:
        raise DataFormatError(
            f"{path} has no validation score to choose by; give the agents validation data"
        )
    return float(score or 0.0)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        raise DataFormatError(f"cannot read {path}: {problem}; run the sweep again") from problem
    return content


def _figure(summary: Mapping[str, Any], key: str) -> float | None:
    if not key.startswith("as_in_paper"):
        value: float | None = summary[key]
        return value
    private = summary.get("whitenings", {}).get("as-in-paper", {})
    return private.get(key.replace("as_in_paper", "communication_accuracy"))  # type: ignore[no-any-return]


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _with_deviation(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"
