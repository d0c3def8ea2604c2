"""Lambda is tried until the best one lies between others."""

from dataclasses import replace

import pytest

from sheafed.reproduction import shift
from sheafed.reproduction.accuracies import as_csv, as_markdown, read_points, run
from sheafed.reproduction.plan import NON_COOPERATIVE, SHEAF_FRL
from sheafed.reproduction.selection import all_candidates, penalty_of
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
            penalty = penalty_of(trial) if trial.candidate else None
            reached = score(float(penalty)) if penalty else 0.5
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
    assert (
        as_csv(plan, [found]).splitlines()[0].endswith(",penalty,penalty_at_edge,seeds,failed_runs")
    )


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
