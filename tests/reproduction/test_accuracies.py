"""A figure of accuracies from its runs to its files, on small plans."""

import csv
import json
import statistics
from dataclasses import replace

import pytest

from sheafed.errors import ConfigError
from sheafed.reproduction import shift
from sheafed.reproduction.accuracies import as_csv, as_markdown, read_points, reproduce
from sheafed.reproduction.figures import draw_accuracies
from sheafed.reproduction.plan import (
    COMFED,
    NON_COOPERATIVE,
    SHEAF_FRL,
    SHEAF_FRL_DISTILLATION,
)
from sheafed.sweep.results import read_summary
from sheafed.sweep.trials import Trial
from tests.helpers.figures import assert_drawn
from tests.helpers.results import finish


@pytest.fixture
def plan(three):
    return replace(
        shift.quick((0, 1)),
        config=three,
        settings=(),
        values=("0.3", "0.9"),
        curves=(NON_COOPERATIVE, SHEAF_FRL),
        penalties=("1e-2", "1e-1"),
        extensions=0,
    )


def table(out):
    with (out / "shift.csv").open() as file:
        return list(csv.DictReader(file))


def test_from_nothing_to_all_files_and_again(plan, tmp_path, in_process, capsys):
    plan, out = replace(plan, values=("0.3",)), tmp_path / "out"
    text = reproduce(plan, out, jobs=1)
    # One run without a penalty and two with, then the other seed.
    # Sheaf-FRL is also tried with two other shrinkages.
    assert len(in_process) == (1 + 2 + 2) + 2
    assert "3 runs, 0 done" in capsys.readouterr().out
    assert_drawn(out, "shift")
    assert (out / "shift.txt").read_text() == text
    rows = table(out)
    assert [(r["data.shift"], r["method"]) for r in rows] == [
        ("0.3", "Non-cooperative"),
        ("0.3", "Sheaf-FRL"),
    ]
    assert [r["penalty"] != "" for r in rows] == [False, True]
    assert {r["seeds"] for r in rows} == {"2"}
    first = [t for t in in_process if t.variant == plan.variant(NON_COOPERATIVE, "0.3")]
    summaries = [read_summary(t, out / "runs") for t in first]
    for column, figure in {
        "private_accuracy": lambda s: s["private_accuracy"],
        "fair_degree_weighted": lambda s: s["whitenings"]["fair"][
            "communication_accuracy_degree_weighted"
        ],
        "as_in_paper_degree_weighted": lambda s: s["whitenings"]["as-in-paper"][
            "communication_accuracy_degree_weighted"
        ],
        "oracle_accuracy_degree_weighted": lambda s: statistics.fmean(
            e["oracle_accuracy"] for e in s["edges"]
        ),
    }.items():
        values = [figure(s) for s in summaries]
        assert float(rows[0][column]) == pytest.approx(statistics.fmean(values))
        assert float(rows[0][f"{column}_sd"]) == pytest.approx(statistics.stdev(values))
    assert rows[1]["as_in_paper_degree_weighted"] == ""
    every = [read_summary(t, out / "runs") for t in in_process]
    samples = {a["training_samples"] for s in every for a in s["agents"].values()}
    assert f"({min(samples):,} to {max(samples):,} per agent)" in text
    before = {path: path.read_bytes() for path in out.glob("shift.*")}
    in_process.clear()
    (out / "runs" / first[0].directory / "summary.json").unlink()
    reproduce(plan, out, jobs=1)
    assert in_process == [first[0]]
    assert {path: path.read_bytes() for path in out.glob("shift.*")} == before
    with pytest.raises(ConfigError, match="run with another config"):
        reproduce(replace(plan, settings=("training.epochs=2",)), out, jobs=1)


def fill(plan, runs, scores):
    """Write finished candidate runs with these scores; None has failed."""
    for trial in plan.candidate_trials():
        score = scores.get(trial.candidate, 0.5)
        if score is not None:
            finish(trial, runs, score, private_accuracy=1 - score)


def test_validation_chooses_with_the_first_seed_only(plan, tmp_path):
    weak, strong = ("method.penalty=1e-2",), ("method.penalty=1e-1",)
    fill(plan, tmp_path, {weak: 0.4, strong: 0.7})  # on test data the weak one is better
    for value in plan.values:
        variant = plan.variant(SHEAF_FRL, value)
        finish(Trial(variant, strong, 1), tmp_path, 0.0, private_accuracy=0.5)
        finish(Trial(variant, weak, 1), tmp_path, 1.0, private_accuracy=0.9)
    found = [p for p in read_points(plan, tmp_path) if p.curve == SHEAF_FRL]
    assert [p.penalty for p in found] == ["1e-1", "1e-1"]
    assert found[0].row.mean["private_accuracy"] == pytest.approx((0.3 + 0.5) / 2)


def test_failed_rows_are_shown_and_the_others_are_kept(plan, tmp_path):
    plan = replace(
        plan, seeds=(0,), curves=(NON_COOPERATIVE, COMFED, SHEAF_FRL, SHEAF_FRL_DISTILLATION)
    )
    fill(plan, tmp_path, {("method.penalty=1e-1",): None})
    for trial in plan.candidate_trials():
        if trial.variant == plan.variant(COMFED, "0.9") and trial.candidate:
            path = tmp_path / trial.directory
            path.mkdir(parents=True, exist_ok=True)
            (path / "summary.json").unlink(missing_ok=True)
            (path / "failure.txt").write_text("error: agent 'bo', round 7: not finite")
    found = read_points(plan, tmp_path)
    markdown, numbers = as_markdown(plan, found), as_csv(plan, found)
    assert "| 0.9 | ComFed | failed | - | - | - | - | - | 0 |" in markdown
    assert "method.penalty=1e-2 seed=0: error: agent 'bo', round 7: not finite" in markdown
    assert "| 0.9 | Sheaf-FRL | 0.500 |" in markdown
    assert "0.9,ComFed,,,,,,,,,,0,,0,2\n" in numbers
    assert {p.penalty for p in found if p.row and p.curve != NON_COOPERATIVE} == {"1e-2"}
    drawn = draw_accuracies(plan, found, "a subtitle").axes[0]
    assert len(drawn.containers) == 4  # ComFed still has its point at 0.3
    assert [list(c[0].get_xdata()) for c in drawn.containers][1] == [0.3]


def test_the_figure_shows_the_table(plan, tmp_path):
    plan = replace(plan, seeds=(0,), curves=(NON_COOPERATIVE, SHEAF_FRL_DISTILLATION))
    for number, trial in enumerate(plan.candidate_trials()):
        paper = {"communication_accuracy_degree_weighted": 0.2 + number / 100}
        fair = {"communication_accuracy_degree_weighted": 0.4 + number / 100}
        finish(
            trial,
            tmp_path,
            0.5 - number / 100,
            private_accuracy=0.6 + number / 100,
            communication_accuracy_degree_weighted=0.3 + number / 100,
            whitenings={} if trial.candidate else {"fair": fair, "as-in-paper": paper},
        )
    found = read_points(plan, tmp_path)
    left, right = draw_accuracies(plan, found, "quick: a subtitle").axes
    assert left.figure.get_suptitle() == "quick: a subtitle"
    styles = [c[0].get_linestyle() for c in right.containers]
    assert styles == ["-", ":", "--"]
    for axes, key in ((left, "private_accuracy"), (right, columns_fair(plan))):
        line = axes.containers[0][0]
        rows = [p.row for p in found if p.curve == NON_COOPERATIVE]
        assert list(line.get_ydata()) == [row.mean[key] for row in rows]
    assert [t.get_text() for t in left.get_xticklabels()] == list(plan.values)


def columns_fair(plan):
    assert plan.degree_weighted
    return "fair_degree_weighted"


def test_a_candidate_that_diverges_is_not_chosen(plan, tmp_path, in_process):
    plan = replace(
        plan,
        settings=("training.optimizer=sgd", "training.learning_rate=0.01"),  # Adam has no scale
        values=("0.5",),
        curves=(SHEAF_FRL,),
        penalties=("1e-2", "1e30"),
        seeds=(0,),
    )
    out = tmp_path / "out"
    reproduce(plan, out, jobs=1)
    (row,) = table(out)
    assert (row["penalty"], row["failed_runs"]) == ("1e-2", "1")
    assert "method.penalty=1e30 seed=0:" in (out / "shift.md").read_text()
    config = json.loads(next((out / "runs").glob("*/seed-0/config.json")).read_text())
    assert config["method"]["name"] == "sheaf-frl"
