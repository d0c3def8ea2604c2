"""A soak notices what it looks for. `make test` runs one of two minutes beside the tests."""

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chaos import checks, trends
from chaos.faults import Kept
from chaos.samples import Sample, append, read
from chaos.schedule import KINDS, SETTLING, Fault, schedule

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
NAMES = [f"agent{k}" for k in range(8)]
EDGES = [("agent0", "agent1"), ("agent1", "agent2"), ("agent6", "agent7")]
SAMPLE = Sample(
    *(0.0, "agent0", 0, 0.0, 500 << 20, 25, 15 << 20, 9, 1000, 500, 9000, 20000),
    *("training", 0, 0, None, 0.5),
)


def faults(seed: int = 0) -> list[Fault]:
    limits = {"seconds": 3600.0, "every": 10.0, "longest": 40.0}
    return schedule(NAMES, EDGES, **limits, spared=NAMES[-2:], seed=seed)


def test_a_schedule_follows_from_its_seed_and_spares_whom_it_should() -> None:
    found = faults()
    assert found == faults()
    assert found != faults(1)
    assert {fault.kind for fault in found} == set(KINDS)
    assert {fault.kind for fault in found[: len(KINDS)]} == set(KINDS), "short soaks have all"
    assert all(0 <= fault.begin <= fault.end <= 3600 for fault in found)
    killed = Counter(f.agents[0] for f in found if f.kind == "kill")
    assert set(killed) == set(NAMES[:-2])


def test_an_agent_has_one_fault_at_a_time_and_a_link_is_cut_once() -> None:
    alone = ("kill", "freeze", "isolate", "full disk", "clock", "expire")
    for fault in faults():
        for other in faults():
            same = fault.agents == other.agents and fault.begin < other.begin
            if same and (fault.kind == other.kind == "cut" or {fault.kind, other.kind} <= {*alone}):
                assert other.begin >= fault.end + SETTLING


def grown(per_hour: float, lives: int = 3) -> list[Sample]:
    """Return samples of two hours whose memory begins anew with every life, and has noise."""
    draw, life = random.Random(0), 7200 / lives
    return [
        replace(
            SAMPLE,
            seconds=t,
            life=int(t // life),
            age=t % life,
            rss=int((500 + per_hour * (t % life) / 3600 + draw.uniform(-2, 2)) * (1 << 20)),
        )
        for t in np.arange(0.0, 7200.0, 60.0).tolist()
    ]


def test_growth_within_lives_is_found_whatever_restarts_hide() -> None:
    memory = trends.TRENDS[0]
    assert trends.slope(grown(0.0), memory) == pytest.approx(0, abs=3)
    assert trends.slope(grown(60.0), memory) == pytest.approx(60, abs=3)
    one = [sample for sample in grown(60.0, 1) if sample.age >= trends.WARM_UP_SECONDS]
    line = np.polyfit([s.seconds / 3600 for s in one], [s.rss / (1 << 20) for s in one], 1)
    assert trends.slope(grown(60.0, 1), memory) == pytest.approx(line[0])
    assert trends.slope(grown(60.0)[:10], memory) is None, "too short to tell"
    slopes = {trend.name: 0.0 for trend in trends.TRENDS}
    assert checks.growth(slopes) == []
    assert checks.growth({**slopes, "memory": 60.0}) == [
        "memory grows by 60.00 MiB an hour, at most 8 are allowed"
    ]


def test_samples_come_back_from_their_file(tmp_path: Path) -> None:
    samples = grown(1.0)[:3]
    for sample in samples:
        append(tmp_path / "samples.csv", [sample])
    assert read(tmp_path / "samples.csv") == samples


def test_lost_and_unordered_records_are_found(tmp_path: Path) -> None:
    (tmp_path / "agent0").mkdir()
    written = [{"round": 8}, {"round": 16}]
    (tmp_path / "agent0" / "metrics.jsonl").write_text("\n".join(map(json.dumps, written)))
    early, late = (Kept("agent0", t, r, 0, r, written[:1]) for t, r in ((10.0, 8), (20.0, 16)))
    assert checks.lost_records(tmp_path, [early, late]) == []
    assert checks.unordered(tmp_path, ["agent0"], [early, late]) == []
    other = replace(late, records=[{"round": 9}])
    assert (
        "lost records that were in its checkpoint at 20 s"
        in checks.lost_records(tmp_path, [early, other])[0]
    )
    back = checks.unordered(tmp_path, ["agent0"], [early, replace(late, rounds=7)])
    assert back == ["agent0: rounds went back from 8 to 7 between 10 and 20 s"]
    samples = [replace(SAMPLE, seconds=30.0, round=15), replace(SAMPLE, seconds=30.0, round=16)]
    assert len(checks.went_back(samples, [early, late])) == 1


def test_accuracies_are_compared_over_the_last_evaluations() -> None:
    calm, faulty = (
        [dict.fromkeys(checks.ACCURACIES, value) for value in values]
        for values in ([0.1] + [0.9, 0.94] * 5, [0.5] + [0.95, 0.9] * 5)
    )
    means = checks.late_means(calm), checks.late_means(faulty)
    assert means[0]["private_accuracy"] == pytest.approx(0.92)
    assert checks.differences(*means, 0.02) == []
    assert len(checks.differences(*means, 0.004)) == 2


def test_where_machines_cannot_be_made_a_soak_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`make test` then goes on without it, a continuous integration does not."""
    monkeypatch.setenv("PATH", str(tmp_path))
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "1", "--if-possible"]
    command += ["--out", str(tmp_path / "soak")]
    ended = {}
    for ci in ("", "true"):
        monkeypatch.setenv("CI", ci)
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        ended[ci] = found.returncode, found.stdout + found.stderr
    assert ended[""] == (0, "no soak: needs Linux with unshare, ip, mount, cc\n")
    assert ended["true"] == (1, "needs Linux with unshare, ip, mount, cc\n")
    assert not (tmp_path / "soak").exists()
