import csv
import io
import json
import statistics

import pytest

from sheafed.errors import DataFormatError, SweepError
from sheafed.sweep.results import (
    as_csv,
    as_markdown,
    average,
    best_trial,
    columns,
    is_finished,
    tabulate,
    validation_score,
)
from sheafed.sweep.trials import Trial
from tests.helpers.results import finish

CANDIDATES = [("method.penalty=0.1",), ("method.penalty=1",)]


def test_validation_chooses_and_test_data_never_do(tmp_path):
    trials = [Trial((), candidate, seed) for candidate in CANDIDATES for seed in (0, 1)]
    for trial in trials:
        weak = trial.candidate == CANDIDATES[0]
        # The candidate that validates better is the one that tests worse.
        score, accuracy = (0.9, 0.5) if weak else (0.8, 0.7)
        finish(trial, tmp_path, score, private_accuracy=accuracy + 0.1 * trial.seed)
    (row,) = tabulate(trials, tmp_path)
    assert row.chosen == (CANDIDATES[0], CANDIDATES[0])
    assert row.mean["private_accuracy"] == pytest.approx(0.55)
    assert row.deviation["private_accuracy"] == pytest.approx(statistics.stdev([0.5, 0.6]))


def test_the_markdown_table_has_what_was_chosen(tmp_path):
    chosen = [("method.penalty=0.1", 0), ("method.penalty=0.1", 1), ("method.penalty=1", 2)]
    trials = [Trial((), (override,), seed) for override, seed in chosen]
    for trial in trials:
        finish(trial, tmp_path, 0.5)
    table = tabulate(trials, tmp_path)
    lines = as_markdown(table).splitlines()
    assert lines[0].startswith("| variant | chosen (seeds) | private accuracy |")
    assert lines[2].startswith("| the config | method.penalty=0.1 (2), method.penalty=1 (1) | 0.0")
    assert len({line.count("|") for line in lines}) == 1


def test_a_candidate_that_did_not_finish_is_not_chosen(tmp_path):
    good, bad = (Trial((), candidate, 0) for candidate in CANDIDATES)
    finish(good, tmp_path, 0.1, private_accuracy=0.4)
    (row,) = tabulate([good, bad], tmp_path)
    assert row.chosen == (CANDIDATES[0],)
    with pytest.raises(SweepError, match="no run of the config with seed 0"):
        tabulate([bad], tmp_path)


def test_both_whitenings_and_the_oracle_accuracy_over_edges(tmp_path):
    trial = Trial((), (), 0)
    private = {"communication_accuracy": 0.3, "communication_accuracy_degree_weighted": 0.2}
    edges = [{"oracle_accuracy": 0.5}, {"oracle_accuracy": 0.9}, {"oracle_accuracy": None}]
    finish(trial, tmp_path, None, whitenings={"as-in-paper": private}, edges=edges)
    mean = average((), [trial], tmp_path).mean
    assert (mean["as_in_paper"], mean["as_in_paper_degree_weighted"]) == (0.3, 0.2)
    assert mean["oracle_accuracy_degree_weighted"] == pytest.approx(0.7)
    learnt = Trial((), (), 1)
    finish(learnt, tmp_path, None)
    mean = average((), [learnt], tmp_path).mean
    assert mean["as_in_paper"] is mean["oracle_accuracy_degree_weighted"] is None


def test_the_table_in_both_forms(tmp_path):
    trials = [Trial((f"data.shift={s}",), (), 0) for s in (0.3, 0.7)]
    for number, trial in enumerate(trials):
        assert not is_finished(trial, tmp_path)
        finish(trial, tmp_path, None, private_accuracy=0.8 + number / 10, bytes_sent=2**20)
        assert is_finished(trial, tmp_path)
    rows = tabulate(trials, tmp_path)
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [r["variant"] for r in read] == ["data.shift=0.3", "data.shift=0.7"]
    assert float(read[1]["private_accuracy"]) == 0.9
    assert read[1]["private_accuracy_sd"] == ""
    assert "| data.shift=0.7 | 0.900 |" in as_markdown(rows)
    assert "| 1.0 |" in as_markdown(rows)


def test_any_override_survives_the_csv(tmp_path):
    variants = [
        ('model.members=["agent-02", "agent-05"]', "data.split=[0.8, 0.1, 0.1]"),
        ("method.distillation={}", "data.name='a \"quoted\", name'"),
    ]
    candidate = ('data.name="x,y | z"',)
    trials = [Trial(variant, candidate, 0) for variant in variants]
    for trial in trials:
        finish(trial, tmp_path, 0.5)
    headings, *rows = csv.reader(io.StringIO(as_csv(tabulate(trials, tmp_path))))
    assert [len(row) for row in rows] == [len(headings)] * 2
    assert [row[:2] for row in rows] == [[" ".join(v), candidate[0]] for v in variants]


def test_choosing_needs_validation_data(tmp_path):
    trials = [Trial((), candidate, 0) for candidate in CANDIDATES]
    for trial in trials:
        finish(trial, tmp_path, None)
    with pytest.raises(DataFormatError, match="validation"):
        tabulate(trials, tmp_path)


def test_a_fair_whitening_is_shown_and_decides_where_it_is_asked_for(tmp_path):
    weak, strong = (Trial((), (f"method.penalty={x}",), 0) for x in ("0.1", "1"))
    for trial, before, after in ((weak, 0.6, 0.2), (strong, 0.5, 0.9)):
        fair = {"validation_communication_accuracy": after, "communication_accuracy": after - 0.1}
        finish(trial, tmp_path, before, communication_accuracy=before, whitenings={"fair": fair})
        record = {"validation_score": before, "validation_private_accuracy": 0.5}
        (tmp_path / trial.directory / "metrics.jsonl").write_text(json.dumps(record))
    assert validation_score(strong, tmp_path, fair=True) == pytest.approx((0.5 + 0.9) / 2)
    assert best_trial([weak, strong], tmp_path, fair=True) == strong
    (row,) = tabulate([weak, strong], tmp_path)
    assert row.chosen == (weak.candidate,), "by what the table shows"
    assert row.mean["fair"] == pytest.approx(0.1)
    learnt = Trial((), (), 1)
    finish(learnt, tmp_path, 0.5, communication_accuracy=0.4)
    assert tabulate([learnt], tmp_path)[0].mean["fair"] == 0.4


def test_an_error_is_minimised_and_has_columns_of_its_own(tmp_path):
    small, large = (Trial((), (f"method.penalty={x}",), 0) for x in ("0.1", "1"))
    for trial, error in ((small, 0.2), (large, 0.9)):
        fair = {"validation_communication_mse": error, "communication_mse": error}
        keys = dict.fromkeys(columns(["mse"]), error)
        summary = keys | {"metrics": {"mse": {"greater_is_better": False}}}
        summary |= {
            "edges": [{"oracle_mse": 0.5}, {"oracle_mse": None}],
            "whitenings": {"fair": fair},
        }
        directory = tmp_path / trial.directory
        directory.mkdir(parents=True)
        (directory / "summary.json").write_text(json.dumps(summary))
        record = {"validation_score": -0.5, "validation_private_mse": 0.4}
        (directory / "metrics.jsonl").write_text(json.dumps(record))
    assert validation_score(small, tmp_path, fair=True) == pytest.approx(-(0.4 + 0.2) / 2)
    assert best_trial([large, small], tmp_path, fair=True) == small
    table = tabulate([small, large], tmp_path)
    assert table[0].chosen == (small.candidate,)
    assert table[0].mean["fair"] == 0.2
    assert table[0].mean["oracle_mse_degree_weighted"] == 0.5
    assert "private mse" in as_markdown(table)
    (row,) = csv.DictReader(io.StringIO(as_csv(table)))
    assert (row["private_mse"], "private_accuracy" in row) == ("0.2", False)
