"""What has to hold at the end of a soak."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from chaos import trends
from chaos.faults import Kept
from chaos.samples import Sample
from sheafed.checkpointing.run_directory import METRICS, SUMMARY
from sheafed.network.launcher import LOG

LAST_EVALUATIONS = 10
ACCURACIES = ("private_accuracy", "communication_accuracy")


def lost_records(out: Path, kept: Sequence[Kept]) -> list[str]:
    """Return what of the checkpoints of killed agents is not in their records at the end."""
    problems = []
    for each in kept:
        if records(out / each.agent)[: len(each.records)] != each.records:
            problems.append(
                f"{each.agent} lost records that were in its checkpoint at {each.seconds:.0f} s"
            )
    return problems


def unordered(out: Path, names: Sequence[str], kept: Sequence[Kept]) -> list[str]:
    """Return where rounds, missed rounds or bytes sent went back, or a round was recorded twice."""
    problems = []
    for name in names:
        for before, after in pairwise([each for each in kept if each.agent == name]):
            for what in ("rounds", "missed", "bytes_sent"):
                if getattr(after, what) < getattr(before, what):
                    problems.append(
                        f"{name}: {what} went back from {getattr(before, what)} to "
                        f"{getattr(after, what)} between {before.seconds:.0f} and "
                        f"{after.seconds:.0f} s"
                    )
        rounds = [record["round"] for record in records(out / name)]
        if any(later <= earlier for earlier, later in pairwise(rounds)):
            problems.append(f"{name}: the rounds of its records do not increase")
    return problems


def went_back(samples: Sequence[Sample], kept: Sequence[Kept]) -> list[str]:
    """Return where an agent trained in an earlier round than its checkpoint had reached."""
    return [
        f"{sample.agent} was in round {sample.round} at {sample.seconds:.0f} s, after its "
        f"checkpoint of round {each.rounds}"
        for each in kept
        for sample in samples
        if sample.agent == each.agent
        and sample.seconds > each.seconds
        and sample.round < each.rounds
        and sample.state == "training"
    ]


def unfinished(out: Path, names: Sequence[str], rounds: int) -> list[str]:
    """Return which agents have not finished all rounds, or logged a traceback."""
    problems = []
    for name in names:
        path = out / name / SUMMARY
        done = json.loads(path.read_text(encoding="utf-8"))["rounds"] if path.exists() else None
        if done != rounds:
            problems.append(f"{name} has done {done} of {rounds} rounds")
        for log in sorted((out / name).glob(f"{LOG}*")):
            if "Traceback" in log.read_text(encoding="utf-8", errors="replace"):
                problems.append(f"{name} logged a traceback in {log.name}")
    return problems


def late_means(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the accuracies, each the mean of the last evaluations: single ones vary by points."""
    return {
        key: fmean([r[key] for r in records if r.get(key) is not None][-LAST_EVALUATIONS:])
        for key in ACCURACIES
    }


def differences(
    calm: Mapping[str, float], faulty: Mapping[str, float], largest: float
) -> list[str]:
    """Return which accuracies are further from those of the undisturbed training than allowed."""
    return [
        f"{key} {faulty[key]:.4f} is {100 * abs(faulty[key] - calm[key]):.2f} points from "
        f"{calm[key]:.4f} undisturbed, at most {100 * largest:g} are allowed"
        for key in ACCURACIES
        if abs(faulty[key] - calm[key]) > largest
    ]


def growth(slopes: Mapping[str, float | None]) -> list[str]:
    """Return what grows faster than allowed."""
    return [
        f"{trend.name} grows by {slopes[trend.name]:.2f} {trend.unit} an hour, at most "
        f"{trend.most_per_hour:g} are allowed"
        for trend in trends.TRENDS
        if (found := slopes[trend.name]) is not None and found > trend.most_per_hour
    ]


def records(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / METRICS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def unevaluated(summary: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> list[str]:
    """Return which directions of links were not evaluated at the end."""
    measured = {(edge["sender"], edge["receiver"]) for edge in summary["edges"]}
    both = [pair for edge in edges for pair in (edge, edge[::-1])]
    return [f"{i} to {j} was not evaluated" for i, j in both if (i, j) not in measured]
