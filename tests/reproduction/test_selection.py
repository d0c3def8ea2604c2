"""Lambda is tried until the best one lies between others."""

import csv
from dataclasses import replace

import pytest

from sheafed.reproduction import shift
from sheafed.reproduction.accuracies import as_csv, as_markdown, read_points, run
from sheafed.reproduction.plan import NON_COOPERATIVE, SHEAF_FRL
from sheafed.reproduction.selection import all_candidates, penalty_of
from sheafed.sweep.trials import Trial
from tests.helpers.results import finish


@pytest.fixture
def plan(three):
    return replace(
        shift.quick((0,)),
        config=three,
        settings=(),
        values=("0.3",),
        curves=(NON_COOPERATIVE, SHEAF_FRL),
        penalties=("1e-2", "1e-1"),
        extensions=3,
    )


def tried(plan, runs, score):
    """The lambdas that are tried in their order, if each has this score; None fails."""
    order = []

    def finish_all(trials):
        for trial in trials:
            penalty = penalty_of(trial) if len(trial.candidate) == 1 else None
            reached = score(float(penalty)) if penalty else -1e3
            order.extend([penalty] if penalty else [])
            if reached is not None:
                finish(trial, runs, reached)

    all_candidates(plan, runs, finish_all)
    return order


def point(plan, runs):
    return next(p for p in read_points(plan, runs) if p.curve == SHEAF_FRL)


@pytest.mark.parametrize(
    ("score", "order", "chosen", "at_edge"),
    [
        # The best is 10, between 1 and 100.
        (lambda x: x if x <= 10 else 0.0, ["1e-2", "1e-1", "1", "10", "100"], "10", False),
        (lambda x: -abs(x - 1e-3), ["1e-2", "1e-1", "0.001", "0.0001"], "0.001", False),
        (lambda x: x, ["1e-2", "1e-1", "1", "10", "100"], "100", True),
        (lambda x: -x, ["1e-2", "1e-1", "0.001", "0.0001", "1e-05"], "1e-05", True),
        # Divergence beyond the best one brackets it too.
        (lambda x: x if x < 0.5 else None, ["1e-2", "1e-1", "1"], "1e-1", False),
        (lambda x: x if x < 0.05 else None, ["1e-2", "1e-1", "0.001"], "1e-2", False),
        # Where all diverge, smaller ones are tried.
        (
            lambda x: x if x < 5e-4 else None,
            ["1e-2", "1e-1", "0.001", "0.0001", "1e-05"],
            None,
            False,
        ),
    ],
)
def test_the_grid_grows_until_it_brackets(plan, tmp_path, score, order, chosen, at_edge):
    assert tried(plan, tmp_path, score) == order
    found = point(plan, tmp_path)
    assert found.penalty == (chosen or "0.0001")
    assert found.at_edge == at_edge
    assert ("(edge)" in as_markdown(plan, [found])) == at_edge
    (row,) = csv.DictReader(as_csv(plan, [found]).splitlines())
    assert (row["penalty"], row["penalty_at_edge"]) == (found.penalty, str(int(at_edge)))


def test_an_extended_choice_is_run_once_and_resumed(plan, tmp_path, in_process):
    points = run(plan, tmp_path, jobs=1)
    ran = [trial.overrides for trial in in_process]
    assert len(ran) == len(set(ran)) > 3
    in_process.clear()
    assert run(plan, tmp_path, jobs=1) == points
    assert in_process == []


def test_other_seeds_use_the_lambda_that_the_extension_found(plan, tmp_path):
    plan = replace(plan, seeds=(0, 1))
    tried(plan, tmp_path, lambda x: -abs(x - 1))
    found = point(plan, tmp_path)
    assert found.penalty == "1"
    assert [f for f in found.failures if "has not been run" in f and "method.penalty=1 seed=1" in f]


def test_the_shrinkage_of_training_is_chosen_after_lambda(plan, tmp_path):
    """Lambda 0.1 is the best of its grid; with it, shrinkage 0.9 is the best."""
    order = []

    def finish_all(trials):
        for trial in trials:
            settings = dict(o.split("=") for o in trial.candidate)
            shrinkage = settings.get("method.whitening.shrinkage", "0.5")
            score = float(settings.get("method.penalty") == "1e-1") + float(shrinkage) / 10
            order.append((settings.get("method.penalty"), shrinkage))
            finish(trial, tmp_path, score)

    all_candidates(plan, tmp_path, finish_all)
    grid = [("1e-2", "0.5"), ("1e-1", "0.5"), ("1", "0.5")]
    assert order[1:] == [*grid, ("1e-1", "0.1"), ("1e-1", "0.9")]
    found = point(plan, tmp_path)
    assert (found.penalty, found.at_edge, found.shrinkages) == ("1e-1", False, (0.9,))
    assert "| 1e-1 | 0.9 | 1 |" in as_markdown(plan, [found])
    trial = plan.candidate_trials()[-1]
    chosen = plan.experiment((*trial.variant, "method.whitening.shrinkage=0.9"))
    assert chosen.method.whitening.shrinkage == 0.9


def test_the_shrinkage_of_maps_fitted_afterwards_is_that_of_each_run(plan, tmp_path):
    plan = replace(plan, curves=(NON_COOPERATIVE,), seeds=(0, 1))
    variant = plan.variant(NON_COOPERATIVE, "0.3")
    for seed, shrinkage in ((0, 0.9), (1, 0.5)):
        whitenings = {"fair": {"shrinkage": shrinkage, "communication_accuracy": 0.7}}
        finish(Trial(variant, (), seed), tmp_path, 0.5, whitenings=whitenings)
    (found,) = read_points(plan, tmp_path)
    assert found.shrinkages == (0.5, 0.9)
    assert found.row.mean["fair"] == 0.7
