import math
import sys
from pathlib import Path

import pytest

from sheafed.errors import ConfigError, MissingDependencyError
from sheafed.sweep.runner import Runner
from sheafed.sweep.search import Range, parse_range, search, search_all

PENALTY = Range("method.penalty", 1e-5, 1.0)
VARIANT = ("method.name=comfed",)


def value(trial):
    return float(trial.candidate[0].partition("=")[2])


def near_a_hundredth(trial):
    return -abs(math.log10(value(trial)) + 2)


def test_a_search_stays_in_range_and_closes_in():
    trials = search(VARIANT, 0, [PENALTY], 40, near_a_hundredth)
    values = [value(t) for t in trials]
    assert all(1e-5 <= v <= 1 for v in values)
    assert len(set(values)) == 40
    assert {t.variant for t in trials} == {VARIANT}
    assert {t.seed for t in trials} == {0}
    early, late = values[:10], values[-10:]

    def distance(vs):
        return sum(abs(math.log10(v) + 2) for v in vs)

    assert distance(late) < distance(early)


def test_an_interrupted_search_asks_the_same_again():
    finished = {}

    def remember(trial):
        if trial not in finished and len(finished) == 7:
            raise KeyboardInterrupt
        return finished.setdefault(trial, near_a_hundredth(trial))

    with pytest.raises(KeyboardInterrupt):
        search(VARIANT, 0, [PENALTY], 15, remember)
    asked = []

    def note(trial):
        asked.append(trial)
        return near_a_hundredth(trial)

    again = search(VARIANT, 0, [PENALTY], 15, note)
    assert list(finished) == asked[:7]
    assert again == search(VARIANT, 0, [PENALTY], 15, near_a_hundredth)
    assert again[0] != search(VARIANT, 1, [PENALTY], 1, near_a_hundredth)[0]
    assert value(again[0]) != value(search((), 0, [PENALTY], 1, near_a_hundredth)[0])


def test_a_search_keeps_away_from_where_runs_fail():
    trials = search((), 0, [PENALTY], 40, lambda t: None if value(t) > 1e-3 else 0.5)
    failed = [value(t) > 1e-3 for t in trials]
    assert any(failed[:10])
    assert sum(failed[-10:]) < sum(failed[:10])


def test_a_row_without_the_key_runs_once():
    ran = []
    (trial,) = search(VARIANT, 3, [], 12, ran.append)
    assert ran == [trial]
    assert trial.overrides == (*VARIANT, "seed=3")


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'sheafed\[tune\]'"):
        search((), 0, [PENALTY], 1, near_a_hundredth)


def test_a_range():
    assert parse_range("method.penalty=1e-5..1") == PENALTY


@pytest.mark.parametrize(
    "option", ["method.penalty", "method.penalty=1", "=1..2", "a=0..1", "a=2..1", "a=x..1", "a=1.."]
)
def test_bad_ranges(option):
    with pytest.raises(ConfigError, match="expected a range of positive numbers"):
        parse_range(option)


def test_a_key_that_a_row_has_is_not_searched():
    with pytest.raises(ConfigError, match=r"method\.penalty is given twice"):
        search_all(Runner("digits", [], Path(), 1), [("method.penalty=1",)], [PENALTY], 3, [0])
