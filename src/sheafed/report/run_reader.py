"""Reads run directories, also of runs that have not finished."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT, CONFIG, METRICS, SUMMARY
from sheafed.errors import CheckpointError, InputError, ReportError
from sheafed.network.status import STATUS, peer_directory
from sheafed.transport.ledger import Ledger

Record = dict[str, Any]


@dataclass(frozen=True)
class RunDirectory:
    """The contents of a run directory."""

    label: str
    finished: bool
    summary: Record
    """That of `summary.json`; of an unfinished run, made from its latest record."""
    records: list[Record]
    """The lines of `metrics.jsonl`."""
    agents: dict[str, Record]
    edges: list[Record]
    """Directed; those of an unfinished run have no metrics, which are written at the end."""
    config: Record | None = None
    ledger: Ledger | None = None
    notes: tuple[str, ...] = field(default=())
    """Reservations about the numbers, for the reader."""

    @property
    def settings(self) -> Record:
        """The config, or what the summary says of a run that was started from Python."""
        found: Record = self.config or self.summary.get("settings") or {}
        return found

    @property
    def links(self) -> list[tuple[str, str]]:
        """The undirected edges, sorted."""
        return sorted({_link(edge["sender"], edge["receiver"]) for edge in self.edges})

    def edge(self, sender: str, receiver: str) -> Record:
        """Return the metrics of a directed edge, `{}` if there is none."""
        return self._by_pair.get((sender, receiver), {})

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], Record]:
        return {(edge["sender"], edge["receiver"]): edge for edge in self.edges}


def read_runs(directories: Sequence[str | Path]) -> list[RunDirectory]:
    """Read some run directories, and give each a label of its own."""
    paths = [Path(directory) for directory in directories]
    if not paths:
        raise InputError("a report needs at least one run directory, got none")
    places = [path.resolve() for path in paths]
    for place in places:
        if places.count(place) > 1:
            raise InputError(f"{place} is given twice; give every run once")
    names = [place.name for place in places]
    return [
        read_run(path, place.name if names.count(place.name) == 1 else str(path))
        for path, place in zip(paths, places, strict=True)
    ]


def read_run(directory: str | Path, label: str | None = None) -> RunDirectory:
    path = Path(directory)
    label = label or path.resolve().name
    if (found := peer_directory(path)) is not None:
        whole = path.parent if (path / STATUS).is_file() else path
        raise ReportError(
            f"{found}, and there is no page about one: no process knows the whole network; "
            f"`sheafed network status {shlex.quote(str(whole))}` shows the agents, and "
            f"{path / SUMMARY} has the figures once they have ended"
        )
    if not ((path / METRICS).is_file() or (path / SUMMARY).is_file()):
        raise ReportError(
            f"{path} is not a run directory: it has neither {METRICS} nor {SUMMARY}; give a "
            "directory that `sheafed run ... --out DIRECTORY` has written"
        )
    records = _read_lines(path / METRICS)
    config = _read_object(path / CONFIG)
    summary = _read_object(path / SUMMARY)
    notes: list[str] = []
    checkpoint = _read_checkpoint(path / CHECKPOINT, notes)
    ledger = _ledger(checkpoint, notes)
    rounds = max(checkpoint.get("rounds", 0), records[-1].get("round", 0) if records else 0)
    if summary is not None and rounds <= summary.get("rounds", 0):
        _check_summary(path / SUMMARY, summary)
        notes += _describe_changes(summary.get("changes", []))
        return RunDirectory(
            label,
            True,
            summary,
            records,
            summary["agents"],
            summary["edges"],
            config,
            ledger,
            tuple(notes),
        )
    notes.insert(0, "This run has not finished: metrics per edge are written at its end.")
    notes += _describe_changes(checkpoint.get("changes", []))
    last = records[-1] if records else {}
    agents, edges = _network(checkpoint, last)
    summary = _partial_summary(config, checkpoint, last, ledger)
    return RunDirectory(label, False, summary, records, agents, edges, config, ledger, tuple(notes))


def _partial_summary(
    config: Record | None, checkpoint: Record, last: Record, ledger: Ledger | None
) -> Record:
    """Return what is known of the summary before a run has finished."""
    config = config or {}
    identity = checkpoint.get("identity", {})
    sent = {} if ledger is None else {"bytes_sent": ledger.bytes_sent()}
    return {
        "method": config.get("method", {}).get("name") or identity.get("method", "unknown method"),
        "seed": config.get("seed", identity.get("seed")),
        "epochs": last.get("epoch", 0),
        "rounds": checkpoint.get("rounds"),
        "seconds": checkpoint.get("seconds"),
        **sent,
        **{key: value for key, value in last.items() if key != "agents"},
    }


def _network(checkpoint: Record, last: Record) -> tuple[dict[str, Record], list[Record]]:
    identity = checkpoint.get("identity", {})
    known = last.get("agents", {})
    agents = {name: dict(known.get(name, {})) for name in identity.get("agents", known)}
    pairs = [pair for a, b in identity.get("graph", []) for pair in ((a, b), (b, a))]
    return agents, [{"sender": sender, "receiver": receiver} for sender, receiver in pairs]


def _read_checkpoint(path: Path, notes: list[str]) -> Record:
    if not path.is_file():
        notes.append(f"The ledger is not shown: there is no {path.name} in the directory.")
        return {}
    try:
        return load_checkpoint(path)
    except CheckpointError as problem:
        notes.append(f"The ledger is not shown: {problem}")
        return {}


def _describe_changes(changes: Sequence[Record]) -> list[str]:
    """Return a sentence for each round in which the run was resumed with other settings."""
    by_round: dict[int, list[str]] = {}
    for change in changes:
        words = f"{change['setting']} {change['after']}, before {change['before']}"
        by_round.setdefault(change["round"], []).append(words)
    return [f"From round {at} on: {'; '.join(found)}." for at, found in by_round.items()]


def _ledger(checkpoint: Record, notes: list[str]) -> Ledger | None:
    if "ledger" not in checkpoint:
        return None
    try:
        return Ledger.from_state(checkpoint["ledger"])
    except (InputError, LookupError, TypeError) as problem:
        notes.append(f"The ledger in the checkpoint cannot be read: {problem}")
        return None


def _read_lines(path: Path) -> list[Record]:
    """Read a line of JSON per record; after a crash the last line may be incomplete."""
    if not path.is_file():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [_parse(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]


def _read_object(path: Path) -> Record | None:
    return _parse(path.read_bytes(), str(path)) if path.is_file() else None


def _parse(content: bytes, place: str) -> Record:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise ReportError(
            f"{place} is damaged, it is not JSON ({problem}); run the experiment again"
        ) from problem
    if not isinstance(value, dict):
        raise ReportError(f"{place} must be a JSON object, got {value!r:.60}")
    return value


def _check_summary(path: Path, summary: Record) -> None:
    missing = [key for key in ("method", "epochs", "agents", "edges") if key not in summary]
    if missing:
        raise ReportError(
            f"{path} is not the summary of a run: {', '.join(missing)} missing; give a directory "
            "that `sheafed run` has written"
        )


def _link(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a <= b else (b, a)
