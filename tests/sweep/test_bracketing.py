"""The candidate past the edge of a grid."""

import pytest

from sheafed.sweep.bracketing import beyond, edge_notes
from sheafed.sweep.results import tabulate
from sheafed.sweep.trials import Trial
from tests.helpers.results import finish


@pytest.mark.parametrize(
    ("grid", "chosen", "expected"),
    [
        (["1e-3", "1e-2", "1e-1"], "1e-1", 1.0),
        (["1e-3", "1e-2", "1e-1"], "1e-3", 1e-4),
        (["1e-3", "1e-2", "1e-1"], "1e-2", None),
        (["1", "2", "6"], "6", 18.0),
        (["1", "2", "6"], "1", 0.5),
        (["6", "1", "2"], "6", 18.0),
        (["1e-2", "1e-1"], "1e-1", 1.0),
        (["0", "0.1", "1"], "1", 10.0),
        (["0", "0.1", "1"], "0", None),
        (["0", "0.1"], "0.1", None),
        (["0.1"], "0.1", None),
    ],
)
def test_past_the_edge_by_the_ratio_there(grid, chosen, expected):
    found = beyond(grid, chosen)
    assert found is None if expected is None else float(found) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (
            "1",
            [
                "method.penalty=1 of data.shift=0.3 was chosen at the edge of its candidates; "
                "try 10 too"
            ],
        ),
        ("0.1", []),
    ],
)
def test_a_sweep_names_choices_at_the_edge(tmp_path, best, expected):
    trials = [
        Trial(("data.shift=0.3",), (f"method.penalty={x}", "graph.kind=ring"), 0)
        for x in ("0.01", "0.1", "1")
    ]
    for trial in trials:
        finish(trial, tmp_path, float(trial.candidate[0].endswith(f"={best}")))
    assert edge_notes(trials, tabulate(trials, tmp_path)) == expected
