"""Kept figures, and what became worse by more than its noise."""

import json

import pytest

from sheafed.bench import baseline
from sheafed.bench.baseline import compare, keep
from sheafed.bench.measurement import Measurement
from sheafed.errors import BenchError


def figure(measured: float, noise: float | None = 0.01, *, at_most: bool = True) -> Measurement:
    return Measurement(1, "a round", 1.1, measured, at_most=at_most, noise=noise)


@pytest.mark.parametrize(
    ("before", "now", "at_most", "verdict"),
    [
        (figure(1.0), 1.042, True, "as before"),  # 3 * hypot(0.01, 0.01) = 0.0424
        (figure(1.0), 1.043, True, "worse"),
        (figure(1.0), 0.957, True, "better"),
        (figure(1.0, at_most=False), 0.957, False, "worse"),
        (figure(1.0, at_most=False), 1.043, False, "better"),
        (figure(1.0, noise=0.0), 1.031, True, "worse"),  # the noise of now is left: 0.03
        (figure(1.0, noise=None), 1.15, True, "as before"),  # 3 * hypot(0.05, 0.01) = 0.153
        (figure(1.0, noise=None), 1.16, True, "worse"),
    ],
)
def test_a_change_counts_beyond_its_noise(tmp_path, before, now, at_most, verdict) -> None:
    path = tmp_path / "kept" / "ratios.json"
    keep(path, [before], quick=False)
    (compared,) = compare(path, [figure(now, at_most=at_most)], quick=False)
    assert compared.verdict == verdict


def test_small_changes_never_count(tmp_path) -> None:
    keep(tmp_path / "f", [figure(10.0, noise=0.0)], quick=True)
    for now, verdict in ((10.19, "as before"), (10.21, "worse")):
        (compared,) = compare(tmp_path / "f", [figure(now, noise=0.0)], quick=True)
        assert compared.verdict == verdict


def test_figures_of_other_machines_and_benchmarks_stay(tmp_path, monkeypatch) -> None:
    path = tmp_path / "f"
    keep(path, [figure(1.0), Measurement(5, "maps", 1.0, 0.64321, noise=0.012343)], quick=False)
    keep(path, [figure(2.0)], quick=False)
    keep(path, [figure(3.0)], quick=True)
    here = baseline.machine_name()
    monkeypatch.setattr(baseline, "machine_name", lambda: "another machine")
    with pytest.raises(BenchError, match=r"no full figures of this machine \(another machine\)"):
        compare(path, [figure(1.0)], quick=False)
    keep(path, [figure(4.0)], quick=False)
    content = json.loads(path.read_text())
    assert content[here]["full"] == {
        "a round": {"measured": 2.0, "noise": 0.01},
        "maps": {"measured": 0.6432, "noise": 0.01234},
    }
    assert content[here]["quick"]["a round"]["measured"] == 3.0
    (compared,) = compare(path, [Measurement(1, "news", 1.0, 1.0)], quick=False)
    assert compared.verdict == "new"


@pytest.mark.parametrize(
    ("quick", "said"),
    [
        (True, r"no full figures .*only quick ones of here; .* bench --keep, or compare with --qu"),
        (False, r"no quick figures .*only full ones of here; .* --quick --keep, or .*without --q"),
    ],
)
def test_figures_that_were_kept_the_other_way_are_named(tmp_path, monkeypatch, quick, said) -> None:
    monkeypatch.setattr(baseline, "machine_name", lambda: "here")
    keep(tmp_path / "f", [figure(1.0)], quick=quick)
    with pytest.raises(BenchError, match=said):
        compare(tmp_path / "f", [figure(1.0)], quick=not quick)


def test_a_missing_or_damaged_file_is_named(tmp_path) -> None:
    with pytest.raises(BenchError, match="write one by sheafed bench --keep"):
        compare(tmp_path / "none", [figure(1.0)], quick=False)
    (tmp_path / "f").write_text("[")
    with pytest.raises(BenchError, match="not a file of sheafed bench --keep"):
        compare(tmp_path / "f", [figure(1.0)], quick=False)
