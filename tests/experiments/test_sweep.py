import csv
import io
import json
import statistics

import pytest

from sheafed.errors import ConfigError, DataFormatError, SweepError
from sheafed.experiments.sweep import FIGURES, Trial, as_csv, as_markdown, is_done, plan, tabulate


def finish(trial, out, score, **figures):
    """Pretend that a run has ended with these figures."""
    directory = out / trial.directory
    directory.mkdir(parents=True)
    record = {} if score is None else {"validation_score": score}
    (directory / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    summary = dict.fromkeys(FIGURES, 0.0) | figures
    (directory / "summary.json").write_text(json.dumps(summary))


def test_the_grid():
    trials = plan(["data.shift=0.3,0.7"], ["method.penalty=0.1,1"], [0, 1])
    assert len(trials) == 8
    assert len({t.directory for t in trials}) == 8
    assert trials[0].overrides == ("data.shift=0.3", "method.penalty=0.1", "seed=0")
    assert plan([], [], [5]) == [Trial((), (), 5)]


def test_whole_variants():
    trials = plan([], [], [0], ["method.name=comfed; method.penalty=2", "method.name=fedproto"])
    assert [t.variant for t in trials] == [
        ("method.name=comfed", "method.penalty=2"),
        ("method.name=fedproto",),
    ]


def test_directories_are_safe_and_differ():
    odd = [Trial((f"data.name=../../{c}",), (), 0).directory for c in "ab "]
    assert len(set(odd)) == 3
    for directory in odd:
        assert ".." not in directory.split("/")
        assert len(directory.split("/")) == 2


def test_validation_chooses_and_test_data_never_do(tmp_path):
    trials = plan([], ["method.penalty=0.1,1"], [0, 1])
    for trial in trials:
        weak = trial.candidate == ("method.penalty=0.1",)
        # The candidate that validates better is the one that tests worse.
        score, accuracy = (0.9, 0.5) if weak else (0.8, 0.7)
        finish(trial, tmp_path, score, private_accuracy=accuracy + 0.1 * trial.seed)
    (row,) = tabulate(trials, tmp_path)
    assert row.chosen == (("method.penalty=0.1",), ("method.penalty=0.1",))
    assert row.mean["private_accuracy"] == pytest.approx(0.55)
    assert row.deviation["private_accuracy"] == pytest.approx(statistics.stdev([0.5, 0.6]))


def test_a_candidate_that_did_not_finish_is_not_chosen(tmp_path):
    good, bad = plan([], ["method.penalty=0.1,1"], [0])
    finish(good, tmp_path, 0.1, private_accuracy=0.4)
    (row,) = tabulate([good, bad], tmp_path)
    assert row.chosen == (("method.penalty=0.1",),)
    with pytest.raises(SweepError, match="no run of the config with seed 0"):
        tabulate([bad], tmp_path)


def test_the_table_in_both_forms(tmp_path):
    trials = plan(["data.shift=0.3,0.7"], [], [0])
    for number, trial in enumerate(trials):
        assert not is_done(trial, tmp_path)
        finish(trial, tmp_path, None, private_accuracy=0.8 + number / 10, bytes_sent=2**20)
        assert is_done(trial, tmp_path)
    rows = tabulate(trials, tmp_path)
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [r["variant"] for r in read] == ["data.shift=0.3", "data.shift=0.7"]
    assert float(read[1]["private_accuracy"]) == 0.9
    assert read[1]["private_accuracy_sd"] == ""
    assert "| data.shift=0.7 | 0.900 |" in as_markdown(rows)
    assert "| 1.0 |" in as_markdown(rows)


def test_choosing_needs_validation_data(tmp_path):
    trials = plan([], ["method.penalty=0.1,1"], [0])
    for trial in trials:
        finish(trial, tmp_path, None)
    with pytest.raises(DataFormatError, match="validation"):
        tabulate(trials, tmp_path)


@pytest.mark.parametrize("option", ["data.shift", "=1", "data.shift=", "data.shift=1,,2"])
def test_bad_options(option):
    with pytest.raises(ConfigError, match="expected values like"):
        plan([option], [], [0])


def test_bad_seeds():
    with pytest.raises(ConfigError, match="different numbers"):
        plan([], [], [1, 1])
